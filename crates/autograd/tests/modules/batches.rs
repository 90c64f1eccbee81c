//! Batches from memory, files and functions.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use ndarray::ArrayD;
use tiled_autograd::train::{Examples, Rows};
use tiled_autograd::{Context, Result, TapeError};
use tiled_exec::{ElementType, NpyHeader};
use tiled_kernel::Reference;

fn context() -> Result<Context<f64>> {
    Context::new(&Reference, 1)
}

/// Rows of two numbers, each the number of its row.
fn numbered(rows: usize) -> ArrayD<f32> {
    ArrayD::from_shape_fn(vec![rows, 2], |at| at[0] as f32)
}

fn numbers(rows: usize) -> ArrayD<i64> {
    ArrayD::from_shape_fn(vec![rows], |at| i64::try_from(at[0]).unwrap_or(0))
}

/// The targets of all batches; each example has the target that belongs to it.
fn drawn(examples: &Examples<f32, i64>, seed: u64, size: usize) -> Result<Vec<i64>> {
    let context = context()?;
    context.seed(seed);
    let mut targets = Vec::new();
    for batch in examples.shuffled(&context, size)? {
        let (x, own) = batch?;
        assert!(own.len() == size || targets.len() + own.len() == examples.len(), "the last alone is short");
        assert!(x.outer_iter().zip(&own).all(|(x, own)| x.iter().all(|x| *x == *own as f32)));
        targets.extend(own);
    }
    Ok(targets)
}

fn write(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).expect("the file can be written");
    (folder, path)
}

fn npy(shape: &[usize], element: ElementType, elements: &[u8]) -> Vec<u8> {
    let mut bytes = NpyHeader::format(shape, element).expect("the type has a name");
    bytes.extend(elements);
    bytes
}

/// A file of one tensor.
fn safetensors(name: &str, dtype: &str, shape: &[usize], elements: &[u8]) -> Vec<u8> {
    let header = format!(
        r#"{{"{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[0,{}]}}}}"#,
        elements.len()
    );
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(elements);
    bytes
}

#[test]
fn batches_are_each_example_once_in_an_order_of_the_seed() -> Result<()> {
    let examples = Examples::new(Rows::memory(numbered(23))?, Rows::memory(numbers(23))?)?;
    let (first, again, other) = (drawn(&examples, 1, 5)?, drawn(&examples, 1, 5)?, drawn(&examples, 2, 5)?);
    assert_eq!(first, again);
    assert_ne!(first, other);
    let mut sorted = first;
    sorted.sort_unstable();
    assert_eq!(sorted, (0..23).collect::<Vec<_>>());
    let in_order: Result<Vec<_>> = examples.in_order(23)?.map(|batch| batch.map(|(_, own)| own)).collect();
    assert_eq!(in_order?, [numbers(23)]);
    Ok(())
}

#[test]
fn files_of_every_type_give_the_batches_of_memory() -> Result<()> {
    let memory = Examples::new(Rows::memory(numbered(41))?, Rows::memory(numbers(41))?)?;
    let expected = drawn(&memory, 3, 8)?;
    let each = |bytes: &dyn Fn(u8) -> Vec<u8>, times: usize| -> Vec<u8> {
        (0..41).flat_map(|row: u8| bytes(row).repeat(times)).collect()
    };
    type Bytes = fn(u8) -> Vec<u8>;
    let types: [(ElementType, &str, Bytes); 8] = [
        (ElementType::U8, "U8", |row| vec![row]),
        (ElementType::I16, "I16", |row| i16::from(row).to_le_bytes().to_vec()),
        (ElementType::U32, "U32", |row| u32::from(row).to_le_bytes().to_vec()),
        (ElementType::I64, "I64", |row| i64::from(row).to_le_bytes().to_vec()),
        (ElementType::U16, "U16", |row| u16::from(row).to_le_bytes().to_vec()),
        (ElementType::I32, "I32", |row| i32::from(row).to_le_bytes().to_vec()),
        (ElementType::F32, "F32", |row| f32::from(row).to_le_bytes().to_vec()),
        (ElementType::F64, "F64", |row| f64::from(row).to_le_bytes().to_vec()),
    ];
    for (element, dtype, bytes) in types {
        let (_folder, x) = write("x.npy", &npy(&[41, 2], element, &each(&bytes, 2)));
        let file = safetensors("x", dtype, &[41, 2], &each(&bytes, 2));
        let (_other, x_too) = write("x.safetensors", &file);
        for x in [Rows::npy(&x)?, Rows::safetensors(&x_too, "x")?] {
            let examples = Examples::new(x, Rows::memory(numbers(41))?)?;
            assert_eq!(drawn(&examples, 3, 8)?, expected, "{dtype}");
        }
        let (_folder, targets) = write("y.npy", &npy(&[41], element, &each(&bytes, 1)));
        let targets = Rows::<i64>::npy(&targets);
        if matches!(element, ElementType::F32 | ElementType::F64) {
            let error = targets.expect_err("a class is an integer").to_string();
            assert!(error.contains(element.name()) && error.contains("integers"), "{error}");
        } else {
            let examples = Examples::new(Rows::memory(numbered(41))?, targets?)?;
            assert_eq!(drawn(&examples, 3, 8)?, expected, "{dtype}");
        }
    }
    Ok(())
}

#[test]
fn a_large_file_is_read_row_by_row() -> Result<()> {
    // 4 GiB by its length, of which a few kilobytes are there
    const ROWS: usize = 1 << 16;
    const ROW: usize = 1 << 16;
    let header = npy(&[ROWS, ROW], ElementType::U8, &[]);
    let (_folder, path) = write("x.npy", &header);
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it is there");
    if file.set_len(header.len() as u64 + (ROWS * ROW) as u64).is_err() {
        eprintln!("skipped: the file system has no sparse files");
        return Ok(());
    }
    let rows = Rows::<f32>::npy(&path)?;
    let examples = Examples::new(rows, Rows::memory(numbers(ROWS))?)?;
    let (x, _) = examples.shuffled(&context()?, 4)?.next().expect("there are batches")?;
    assert_eq!(x.shape(), [4, ROW]);
    Ok(())
}

#[test]
fn the_next_batch_is_prepared_while_one_is_worked_on() -> Result<()> {
    let (sender, read) = channel();
    let sender = Mutex::new(sender);
    let rows = Rows::function(6, &[1], move |row, values: &mut [f32]| {
        values[0] = row as f32;
        sender.lock().expect("nobody panics").send(row).expect("somebody listens");
        Ok(())
    })?;
    let examples = Examples::new(rows, Rows::memory(numbers(6))?)?;
    let mut batches = examples.in_order(2)?;
    let (first, _) = batches.next().expect("there are three")?;
    assert_eq!(first.into_raw_vec_and_offset().0, [0.0, 1.0]);
    // nobody asks for the second batch, and yet its rows are read
    let wait = || read.recv_timeout(Duration::from_secs(60)).expect("a row is read");
    assert_eq!([wait(), wait(), wait(), wait()], [0, 1, 2, 3]);
    drop((batches, examples));
    assert!(
        read.recv_timeout(Duration::from_secs(60)).is_err(),
        "the third is read when the second is taken"
    );
    Ok(())
}

#[test]
fn a_row_that_cannot_be_read_ends_the_batches() -> Result<()> {
    let rows = Rows::function(9, &[], |row, _: &mut [f32]| match row {
        5 => Err(TapeError::Axes {
            operator: "picture",
            what: "the picture",
            expected: "3",
            got: [7].as_slice().into(),
        }),
        _ => Ok(()),
    })?;
    let batches = Examples::new(rows, Rows::memory(numbers(9))?)?.in_order(2)?;
    let read: Vec<bool> = batches.map(|batch| batch.is_ok()).collect();
    assert_eq!(read, [true, true, false]);

    // a file that is cut while it is in use
    let (_folder, path) = write("x.npy", &npy(&[4, 2], ElementType::U8, &[1; 8]));
    let rows = Rows::<f32>::npy(&path)?;
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("it is there")
        .set_len(130)
        .expect("it can be cut");
    let mut batches = Examples::new(rows, Rows::memory(numbers(4))?)?.in_order(4)?;
    let error = batches.next().expect("an error").expect_err("the rows are gone");
    assert!(matches!(error, TapeError::File(_)), "{error}");
    assert!(batches.next().is_none());
    Ok(())
}

#[test]
fn what_does_not_belong_together_is_refused() -> Result<()> {
    let examples =
        |rows, targets| Examples::new(Rows::memory(numbered(rows))?, Rows::memory(numbers(targets))?);
    let error = examples(5, 4).expect_err("one has no target").to_string();
    assert_eq!(error, "batches: targets has shape [4], wants [5]");
    let five = examples(5, 5)?;
    assert!(five.in_order(0).is_err() && five.split(&context()?, 6).is_err());
    assert!(Rows::memory(ArrayD::<f32>::zeros(vec![])).is_err());
    assert_eq!(examples(0, 0)?.in_order(3)?.count(), 0);

    let (_folder, path) = write("x.safetensors", &safetensors("images", "F32", &[2], &[0; 8]));
    let error = Rows::<f32>::safetensors(&path, "image").expect_err("another name").to_string();
    assert!(error.ends_with("there is no tensor `image`, there are `images`"), "{error}");
    let (_folder, path) = write("x.npy", &npy(&[3, 2], ElementType::F32, &[0; 20]));
    let error = Rows::<f32>::npy(&path).expect_err("it is short").to_string();
    assert!(error.ends_with("truncated: 152 bytes expected, 148 bytes found"), "{error}");
    let (_folder, path) = write("x.npy", &npy(&[], ElementType::F32, &[0; 4]));
    let error = Rows::<f32>::npy(&path).expect_err("no rows").to_string();
    assert!(error.ends_with("an array without axes has no rows"), "{error}");
    let (_folder, path) = write("x.npy", &npy(&[usize::MAX, 3], ElementType::F32, &[]));
    assert!(Rows::<f32>::npy(&path).is_err());
    Ok(())
}
