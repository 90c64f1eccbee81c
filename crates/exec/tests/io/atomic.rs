//! Nothing stands under a final name before it is complete.

use std::path::{Path, PathBuf};

use tiled_exec::{FileSink, IoError, Sink, create_sink};
use tiled_tensor::{DType, Tensor};

use crate::windows::{numbered, region, whole, write_tiles};

const SHAPE: [usize; 4] = [1, 3, 8, 9];

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Every kind of file, in folders of their own.
fn each(test: impl Fn(&Path, Box<dyn Sink<f32>>, &Tensor<f32>)) {
    for name in ["y.npy", "y.raw", "y.png"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let sink = create_sink::<f32>(&path, SHAPE).unwrap();
        test(&path, sink, &numbered(SHAPE));
    }
}

#[test]
fn a_file_has_its_name_only_once_it_is_finished() {
    each(|path, sink, tensor| {
        let folder = path.parent().unwrap();
        let before = names(folder);
        let name = path.file_name().unwrap().to_str().unwrap();
        let start = format!(".{name}.partial-{}-", std::process::id());
        assert!(before.len() == 1 && before[0].starts_with(&start), "{before:?}");
        write_tiles(&*sink, tensor, [3, 4]);
        assert_eq!(names(folder), before);
        sink.finish().unwrap();
        assert_eq!(names(folder), [name]);
        drop(sink);
        assert_eq!(names(folder), [name]);
    });
}

#[test]
fn a_prepared_file_has_its_name_only_once_it_is_finished() {
    each(|path, sink, tensor| {
        let folder = path.parent().unwrap();
        write_tiles(&*sink, tensor, [3, 4]);
        let before = names(folder);
        sink.prepare().unwrap();
        assert_eq!(names(folder), before);
        let again = sink.write(region([0, 2], [0, 9]), &tensor.view());
        assert!(matches!(again, Err(IoError::Closed { .. })));
        sink.prepare().unwrap();
        sink.finish().unwrap();
        assert_eq!(names(folder), [path.file_name().unwrap().to_str().unwrap()]);
        assert!(matches!(sink.finish(), Err(IoError::Closed { .. })));
    });
    each(|path, sink, tensor| {
        write_tiles(&*sink, tensor, [3, 4]);
        sink.prepare().unwrap();
        sink.abort();
        assert!(names(path.parent().unwrap()).is_empty());
        assert!(matches!(sink.finish(), Err(IoError::Closed { .. })));
    });
    each(|path, sink, _| {
        assert!(matches!(sink.prepare(), Err(IoError::Incomplete { .. })));
        assert!(names(path.parent().unwrap()).is_empty());
    });
}

#[test]
fn a_sink_dropped_or_aborted_leaves_nothing() {
    each(|path, sink, tensor| {
        write_tiles(&*sink, tensor, [3, 4]);
        drop(sink);
        assert!(names(path.parent().unwrap()).is_empty());
    });
    each(|path, sink, tensor| {
        sink.write(region([0, 2], [0, 9]), &tensor.view()).unwrap();
        sink.abort();
        assert!(names(path.parent().unwrap()).is_empty());
        let error = sink.write(region([2, 8], [0, 9]), &tensor.view()).unwrap_err();
        assert_eq!(error.to_string(), format!("`{}`: already finished or aborted", path.display()));
        assert!(matches!(sink.finish(), Err(IoError::Closed { .. })));
        assert!(names(path.parent().unwrap()).is_empty());
    });
}

#[test]
fn an_incomplete_sink_does_not_finish() {
    each(|path, sink, tensor| {
        sink.write(region([0, 7], [0, 9]), &tensor.view()).unwrap();
        let error = sink.finish().unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("`{}`: incomplete: 216 elements expected, 189 written", path.display())
        );
        assert!(names(path.parent().unwrap()).is_empty());
    });
}

#[test]
fn a_finished_sink_is_not_aborted_nor_finished_twice() {
    each(|path, sink, tensor| {
        sink.write(whole(SHAPE), &tensor.view()).unwrap();
        sink.finish().unwrap();
        sink.abort();
        assert!(matches!(sink.finish(), Err(IoError::Closed { .. })));
        assert!(matches!(sink.write(whole(SHAPE), &tensor.view()), Err(IoError::Closed { .. })));
        assert!(path.is_file());
    });
}

#[test]
fn the_old_file_stands_until_the_new_one_is_complete() {
    each(|path, sink, tensor| {
        std::fs::write(path, "old").unwrap();
        write_tiles(&*sink, tensor, [2, 9]);
        assert_eq!(std::fs::read(path).unwrap(), b"old");
        sink.finish().unwrap();
        assert_ne!(std::fs::read(path).unwrap(), b"old");
    });
    each(|path, sink, tensor| {
        std::fs::write(path, "old").unwrap();
        write_tiles(&*sink, tensor, [2, 9]);
        drop(sink);
        assert_eq!(std::fs::read(path).unwrap(), b"old");
        assert_eq!(names(path.parent().unwrap()).len(), 1);
    });
}

#[test]
fn two_sinks_of_one_name_do_not_mix() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y.npy");
    let [first, second] = [0, 1].map(|_| create_sink::<f32>(&path, SHAPE).unwrap());
    first.write(whole(SHAPE), &Tensor::zeros(SHAPE).unwrap().view()).unwrap();
    second.write(whole(SHAPE), &numbered(SHAPE).view()).unwrap();
    second.finish().unwrap();
    drop(first);
    let source = tiled_exec::open_source::<f32>(&path).unwrap();
    assert_eq!(crate::windows::read_all(&*source).data(), numbered::<f32>(SHAPE).data());
    assert_eq!(names(folder.path()), ["y.npy"]);
}

#[test]
fn a_finish_that_cannot_rename_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y.npy");
    let sink = create_sink::<f32>(&path, SHAPE).unwrap();
    sink.write(whole(SHAPE), &numbered(SHAPE).view()).unwrap();
    // A folder has taken the name since.
    std::fs::create_dir_all(path.join("inside")).unwrap();
    assert!(matches!(sink.finish(), Err(IoError::Write { .. })));
    assert_eq!(names(folder.path()), ["y.npy"]);
    assert!(path.is_dir());
}

#[test]
fn room_is_taken_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let sink = FileSink::create_raw(folder.path().join("y.raw"), SHAPE, DType::F64).unwrap();
    let partial = folder.path().join(&names(folder.path())[0]);
    assert_eq!(partial.metadata().unwrap().len(), 8 * 216);
    drop(sink);
}

#[cfg(unix)]
#[test]
fn a_disk_too_small_is_found_before_any_work() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y.npy");
    let error = create_sink::<f32>(&path, [1, 1, 1 << 29, 1 << 30]).map(drop).unwrap_err();
    let IoError::NoSpace { expected, got, .. } = error else { panic!("{error:?}") };
    assert_eq!(expected, (1 << 61) + 128);
    assert_eq!(
        error.to_string(),
        format!("`{}`: no space left: {expected} bytes needed, {got} bytes free", path.display())
    );
    assert!(names(folder.path()).is_empty());
}

#[cfg(unix)]
#[test]
fn a_link_keeps_pointing_at_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let [file, link] = ["real.npy", "link.npy"].map(|name| folder.path().join(name));
    std::fs::write(&file, "old").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let sink = create_sink::<f32>(&link, SHAPE).unwrap();
    sink.write(whole(SHAPE), &numbered(SHAPE).view()).unwrap();
    sink.finish().unwrap();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_ne!(std::fs::read(&file).unwrap(), b"old");
}

#[test]
fn what_is_no_file_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y.npy");
    std::fs::create_dir(&path).unwrap();
    let error = create_sink::<f32>(&path, SHAPE).map(drop).unwrap_err();
    assert_eq!(error.to_string(), format!("`{}`: not a regular file", path.display()));
    #[cfg(target_os = "linux")]
    for device in ["/dev/null", "/dev/full"] {
        let error = FileSink::create_raw(device, SHAPE, DType::F32).unwrap_err();
        assert_eq!(error.to_string(), format!("`{device}`: not a regular file"));
    }
    for path in ["", "/", ".."] {
        assert!(FileSink::create_raw(PathBuf::from(path), SHAPE, DType::F32).is_err());
    }
}

#[test]
fn what_a_killed_process_of_the_same_number_left_is_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y.npy");
    let first = create_sink::<f32>(&path, SHAPE).unwrap();
    let name = names(folder.path()).remove(0);
    let (start, count) = name.rsplit_once('-').unwrap();
    let count: u64 = count.parse().unwrap();
    let left: Vec<_> = (1..900).map(|i| folder.path().join(format!("{start}-{}", count + i))).collect();
    for path in &left {
        std::fs::write(path, "left").unwrap();
    }
    let second = create_sink::<f32>(&path, SHAPE).unwrap();
    second.write(whole(SHAPE), &numbered(SHAPE).view()).unwrap();
    second.finish().unwrap();
    drop(first);
    assert!(left.iter().all(|path| std::fs::read(path).is_ok_and(|bytes| bytes == b"left")));
    assert_eq!(names(folder.path()).len(), left.len() + 1);
}
