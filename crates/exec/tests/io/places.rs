//! Places of files that are written later, and what is left of those in the making.

use tiled_exec::{
    IoError, Reservation, Sink, WrittenFile, create_sink, open_regular, remove_partial_files, write_whole,
};

fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = folder.read_dir().unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn r13_a_reservation_takes_the_room_and_leaves_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w");
    std::fs::write(&path, "old").unwrap();
    let place = Reservation::new(&path, 12345).unwrap();
    let held = names(folder.path()).into_iter().find(|name| name != "w").unwrap();
    assert_eq!(folder.path().join(held).metadata().unwrap().len(), 12345);
    drop(place);
    assert_eq!(names(folder.path()), ["w"]);
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    write_whole(&path, b"new").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    let error = Reservation::new(folder.path(), 0).unwrap_err();
    assert!(matches!(error, IoError::NotAFile { .. }), "{error}");
    let error = Reservation::new(folder.path().join("missing/w"), 0).unwrap_err();
    assert!(matches!(error, IoError::Create { .. }), "{error}");
    assert!(matches!(Reservation::new(&path, 1 << 61), Err(IoError::NoSpace { .. })));
    assert_eq!(names(folder.path()), ["w"]);
}

#[test]
fn a_written_file_has_no_name_until_it_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w");
    std::fs::write(&path, "old").unwrap();
    drop(WrittenFile::of_bytes(&path, b"new").unwrap());
    assert_eq!(
        (names(folder.path()), std::fs::read(&path).unwrap()),
        (vec!["w".to_owned()], b"old".to_vec())
    );
    let file = WrittenFile::of_bytes(&path, b"new").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    file.finish().unwrap();
    assert_eq!(
        (names(folder.path()), std::fs::read(&path).unwrap()),
        (vec!["w".to_owned()], b"new".to_vec())
    );
}

#[cfg(unix)]
#[test]
fn r15_a_pipe_is_refused_without_waiting_for_its_other_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    assert!(matches!(open_regular(&path), Err(IoError::NotAFile { .. })));
    assert!(matches!(Reservation::new(&path, 0), Err(IoError::NotAFile { .. })));
    for device in ["/dev/null", "/dev/zero", "/"] {
        assert!(matches!(open_regular(device), Err(IoError::NotAFile { .. })), "{device}");
    }
}

#[test]
fn r15_partial_files_can_be_removed_at_once() {
    // the list is the process's, so that another process runs this
    if std::env::var_os("TILED_TEST_PARTIAL").is_none() {
        let program = std::env::current_exe().unwrap();
        let mut command = std::process::Command::new(program);
        command.args(["--exact", "places::r15_partial_files_can_be_removed_at_once"]);
        let output = command.env("TILED_TEST_PARTIAL", "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done.npy");
    write_whole(&done, b"done").unwrap();
    let sinks = ["a.npy", "b.raw", "c.png"]
        .map(|name| create_sink::<f32>(folder.path().join(name), [1, 1, 4, 4]).unwrap());
    assert_eq!(names(folder.path()).len(), 4);
    remove_partial_files();
    assert_eq!(names(folder.path()), ["done.npy"]);
    assert!(sinks.iter().all(|sink| sink.finish().is_err()));
    drop(sinks);
    remove_partial_files();
    assert_eq!(names(folder.path()), ["done.npy"]);
}
