//! A disk that is full, at any byte.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use tiled_tensor::Tensor;

use super::super::positioned::{Positioned, PositionedFile};
use super::*;

/// A file on a disk that has room for so many bytes.
#[derive(Debug)]
struct Quota {
    file: PositionedFile,
    room: AtomicU64,
    full: io::ErrorKind,
    fail_sync: bool,
}

impl Positioned for Quota {
    fn read_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()> {
        self.file.read_at(bytes, position)
    }
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let take = |room: u64| room.checked_sub(bytes.len() as u64);
        match self.room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) {
            Ok(_) => self.file.write_at(bytes, position),
            Err(_) => Err(self.full.into()),
        }
    }
    fn sync(&self) -> io::Result<()> {
        if self.fail_sync { Err(self.full.into()) } else { self.file.sync() }
    }
}

const SHAPE: [usize; 4] = [2, 3, 50, 400];

fn sink(path: &Path, room: u64, full: io::ErrorKind, fail_sync: bool) -> Result<FileSink, IoError> {
    let quota = |file: File| -> Box<dyn Positioned> {
        Box::new(Quota { file: PositionedFile::new(file), room: room.into(), full, fail_sync })
    };
    FileSink::create_with(path, SHAPE, ElementType::F32, &[7; 64], |path, len| {
        PartialFile::create_with(path, len, quota)
    })
}

fn names(folder: &tempfile::TempDir) -> Vec<PathBuf> {
    folder.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_full_disk_leaves_no_file_at_whatever_byte_it_is_full() {
    let tensor = Tensor::<f32>::from_fn(SHAPE, |[n, c, y, x]| (n + c + y + x) as f32).unwrap();
    let len = 64 + 4 * SHAPE.iter().product::<usize>() as u64;
    for room in [0, 63, 64, 65, len / 2, len - 1] {
        for full in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("y.npy");
            let error = sink(&path, room, full, false)
                .and_then(|sink| {
                    assert_eq!(names(&folder).len(), 1, "the temporary file is there");
                    sink.write(tensor.view().region(), &tensor.view())
                        .and_then(|()| Sink::<f32>::finish(&sink))
                })
                .expect_err("the disk is full");
            let start = format!("`{}`: no space left: ", path.display());
            assert!(error.to_string().starts_with(&start), "{error}");
            assert!(matches!(error, IoError::DiskFull { .. }), "{error:?}");
            assert!(names(&folder).is_empty(), "room {room}: {:?}", names(&folder));
        }
    }
}

#[test]
fn a_disk_with_just_enough_room_is_enough() {
    let tensor = Tensor::<f32>::zeros(SHAPE).unwrap();
    let len = 64 + 4 * SHAPE.iter().product::<usize>() as u64;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y.npy");
    let sink = sink(&path, len, io::ErrorKind::StorageFull, false).unwrap();
    sink.write(tensor.view().region(), &tensor.view()).unwrap();
    Sink::<f32>::finish(&sink).unwrap();
    assert_eq!(names(&folder), std::slice::from_ref(&path));
    assert_eq!(path.metadata().unwrap().len(), len);
}

#[test]
fn a_disk_that_is_found_full_by_the_last_flush_leaves_the_old_file() {
    let tensor = Tensor::<f32>::zeros(SHAPE).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y.npy");
    std::fs::write(&path, "old").unwrap();
    let sink = sink(&path, u64::MAX, io::ErrorKind::StorageFull, true).unwrap();
    sink.write(tensor.view().region(), &tensor.view()).unwrap();
    let error = Sink::<f32>::finish(&sink).unwrap_err();
    assert!(error.to_string().contains("no space left"), "{error}");
    assert_eq!(names(&folder), std::slice::from_ref(&path));
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
}

#[test]
fn other_errors_of_a_disk_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let error = sink(&folder.path().join("y.npy"), 0, io::ErrorKind::PermissionDenied, false).unwrap_err();
    assert!(matches!(error, IoError::Write { .. }), "{error:?}");
}
