//! The examples do what they say.

#![expect(
    clippy::duplicate_mod,
    reason = "two examples draw their losses with the same lines, each as a program of its own"
)]

#[expect(dead_code, reason = "the tests call what `main` prints")]
#[path = "../examples/digits.rs"]
mod digits;
#[expect(dead_code, reason = "the tests call what `main` prints")]
#[path = "../examples/relief.rs"]
mod relief;
#[expect(dead_code, reason = "the tests call what `main` prints")]
#[path = "../examples/xor.rs"]
mod xor;

use std::sync::{Arc, OnceLock};

use tiled_autograd::{Context, Mode, Result, Tiled};
use tiled_cpu::CpuBackend;
use tiled_exec::{ElementType, NpyHeader, Source, open_source};
use tiled_graph::Graph;
use tiled_kernel::Reference;

fn cpu() -> &'static CpuBackend {
    static CPU: OnceLock<CpuBackend> = OnceLock::new();
    CPU.get_or_init(|| CpuBackend::new().expect("the instruction set is known"))
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

#[test]
fn the_exclusive_or_is_learnt_and_the_same_each_time() -> Result<()> {
    let (losses, probabilities) = xor::learn(&Reference)?;
    for (got, expected) in probabilities.iter().zip([0.0, 1.0, 1.0, 0.0]) {
        assert!((got - expected).abs() < 0.05, "{probabilities:?}");
    }
    assert!(losses[losses.len() - 1] < 0.05 * losses[0]);
    let (again, _) = xor::learn(&Reference)?;
    assert!(same_bits(&losses, &again));
    Ok(())
}

#[test]
fn a_convolutional_network_recognises_98_of_100_digits() -> Result<()> {
    let learnt = digits::learn(cpu(), 2, digits::CNN_EPOCHS, digits::Cnn::new, |_, _| ())?;
    eprintln!("{} of {}", learnt.correct, digits::HELD_OUT);
    assert!(learnt.correct * 100 >= digits::HELD_OUT * 98, "{} are recognised", learnt.correct);
    Ok(())
}

#[test]
fn a_transformer_recognises_95_of_100_digits() -> Result<()> {
    let learnt = digits::learn(cpu(), 2, digits::VIT_EPOCHS, digits::Vit::new, |_, _| ())?;
    eprintln!("{} of {}", learnt.correct, digits::HELD_OUT);
    assert!(learnt.correct * 100 >= digits::HELD_OUT * 95, "{} are recognised", learnt.correct);
    Ok(())
}

#[test]
fn losses_of_digits_have_the_same_bits_on_any_number_of_threads() -> Result<()> {
    let cnn = |threads| digits::learn(cpu(), threads, 2, digits::Cnn::new, |_, _| ());
    let vit = |threads| digits::learn(cpu(), threads, 2, digits::Vit::new, |_, _| ());
    let (first, first_of_vit) = (cnn(1)?.losses, vit(1)?.losses);
    for threads in [1, 2, 4] {
        assert!(same_bits(&first, &cnn(threads)?.losses), "convolutions on {threads} threads");
        assert!(same_bits(&first_of_vit, &vit(threads)?.losses), "attention on {threads} threads");
    }
    Ok(())
}

/// A part of a picture, as a file that is read where it is needed.
fn part(folder: &std::path::Path, name: &str) -> Result<relief::Picture> {
    let text = r#"{
        "inputs": [{"name": "x", "channels": 3}],
        "nodes": [{"name": "part", "op": "pad", "inputs": ["x"], "padding": [[-600, -1700], [-1800, -3000]]}],
        "outputs": ["part"]
    }"#;
    let context = Context::<f32>::new(cpu(), 1)?;
    let crop = Tiled::new(&context, Graph::from_json(text).expect("it is a network"), None, 0)?;
    let part = crop.forward_from(vec![relief::picture(name)?], Mode::Eval)?.remove(0);
    let mut bytes = NpyHeader::format(part.shape(), ElementType::F32).expect("the type has a name");
    bytes.extend(part.to_vec().iter().flat_map(|value| value.to_le_bytes()));
    let path = folder.join(name).with_extension("npy");
    std::fs::write(&path, bytes).expect("the file can be written");
    let source: Box<dyn Source<f32>> = open_source(&path).map_err(tiled_autograd::TapeError::from)?;
    Ok(Arc::from(source))
}

#[test]
fn relief_is_learnt_with_the_same_bits_on_any_number_of_threads() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let photograph = part(folder.path(), relief::PHOTOGRAPH)?;
    assert_eq!(photograph.shape(), [1, 3, 400, 600], "4×6 cells");
    let learn = |threads| {
        let context = Context::<f32>::new(cpu(), threads)?;
        relief::learn(&context, &photograph, part(folder.path(), relief::RELIEF)?, 6, |_, _| ())
    };
    let one = learn(1)?;
    assert!(one.losses[5] < one.losses[0], "{:?}", one.losses);
    assert!(one.error.is_finite() && one.error_of_mean > 0.0);
    assert!(same_bits(&one.losses, &learn(2)?.losses));
    Ok(())
}
