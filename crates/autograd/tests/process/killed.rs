//! A process that is killed while it writes a checkpoint leaves the one before it.

use std::path::{Path, PathBuf};

use tiled_autograd::nn::{Linear, Module};
use tiled_autograd::train::{Method, Optimizer, load_checkpoint, save_checkpoint};
use tiled_autograd::{Context, Result, SgdOptions, Tensor};
use tiled_kernel::Reference;

use crate::{plays, start};

const PART: &str = "writes checkpoints";
const PATH: &str = "TILED_TEST_CHECKPOINT";
/// 16 MB of weights, which take a while to write.
const WIDTH: usize = 2000;

fn model(context: &Context<f32>) -> Result<(Linear<f32>, Optimizer<f32>)> {
    let model = Linear::new(context, WIDTH, WIDTH, true)?;
    let optimizer = Optimizer::new(model.parameters(), Method::Sgd(SgdOptions::default()))?;
    Ok((model, optimizer))
}

/// Fills all parameters with a number of the step, never zero.
fn fill(model: &Linear<f32>, step: u64) -> Result<()> {
    let value = (step % 1000 + 1) as f32;
    model.parameters().iter().try_for_each(|(_, tensor): &(String, Tensor<f32>)| {
        tensor.assign_slice(&vec![value; tensor.elements()])
    })
}

/// Writes one checkpoint after the other until somebody ends it.
fn write_for_ever(path: &Path) -> Result<()> {
    let context = Context::<f32>::new(&Reference, 1)?;
    let (model, optimizer) = model(&context)?;
    for step in 0.. {
        fill(&model, step)?;
        save_checkpoint(path, &context, &model, &optimizer, step)?;
    }
    Ok(())
}

/// The file under a temporary name that lies in a folder.
fn unfinished(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder can be read");
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    paths.into_iter().find(|path| path.to_string_lossy().contains(".partial-"))
}

/// Whether the weights that come last were not written any more.
fn has_no_end(path: &Path) -> bool {
    let bytes = std::fs::read(path).expect("the file is there");
    bytes.ends_with(&[0; 4096])
}

#[test]
fn a_process_killed_while_it_writes_leaves_the_checkpoint_before() -> Result<()> {
    if plays(PART) {
        let path = std::env::var_os(PATH).expect("whoever starts this says where it writes");
        return write_for_ever(Path::new(&path));
    }
    const WANTED: usize = 3;
    const ROUNDS: usize = 60;
    let context = Context::<f32>::new(&Reference, 1)?;
    let (model, mut optimizer) = model(&context)?;
    let mut cut = 0;
    for round in 0..ROUNDS {
        if cut == WANTED {
            break;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("checkpoint.safetensors");
        let mut child = start_writer(&path);
        // one checkpoint stands and the next is being written
        while !(path.exists() && unfinished(folder.path()).is_some()) {
            assert!(
                child.try_wait().expect("its state is known").is_none(),
                "the writer has ended by itself"
            );
            std::thread::yield_now();
        }
        child.kill().expect("it can be killed");
        child.wait().expect("a process that was killed ends");
        // it may have been between two files after all
        let left = unfinished(folder.path());
        cut += usize::from(left.is_some_and(|left| has_no_end(&left)));

        let steps = load_checkpoint(&path, &context, &model, &mut optimizer)?;
        let expected = (steps % 1000 + 1) as f32;
        for (name, tensor) in model.parameters() {
            let values = tensor.values();
            assert!(values.view().iter().all(|value| *value == expected), "round {round}, {name}");
        }
        // what is left under a temporary name is in nobody's way
        save_checkpoint(&path, &context, &model, &optimizer, steps + 1)?;
        assert_eq!(load_checkpoint(&path, &context, &model, &mut optimizer)?, steps + 1);
    }
    assert_eq!(cut, WANTED, "of {ROUNDS} processes so many were killed in the middle of a file");
    Ok(())
}

fn start_writer(path: &Path) -> std::process::Child {
    let test = "killed::a_process_killed_while_it_writes_leaves_the_checkpoint_before";
    start(test, PART, &[(PATH, path.as_os_str())])
}
