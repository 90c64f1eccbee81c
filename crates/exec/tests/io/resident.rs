//! What sinks will hold is known before there are any.

use tiled_exec::{IoError, Sink, create_sink, sink_resident_bytes};

#[test]
fn r06_what_a_sink_holds_is_known_before_it_is_made() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["y.npy", "y.raw", "y.bin", "y.png", "Y.PNG"] {
        for shape in [[1, 3, 40, 50], [1, 1, 7, 9]] {
            let path = folder.path().join(name);
            let known = sink_resident_bytes(&path, shape).unwrap();
            assert_eq!(folder.path().read_dir().unwrap().count(), 0, "nothing is made");
            let sink = create_sink::<f32>(&path, shape).unwrap();
            assert_eq!(known, sink.resident_bytes(), "{name} {shape:?}");
        }
    }
    assert!(sink_resident_bytes("y.png", [1, 3, 40, 50]).unwrap() > 0);
    for (name, shape) in
        [("y.jpg", [1, 3, 4, 5]), ("y", [1, 3, 4, 5]), ("y.png", [2, 3, 4, 5]), ("y.png", [1, 2, 4, 5])]
    {
        let path = folder.path().join(name);
        let expected = create_sink::<f32>(&path, shape).map(drop).unwrap_err();
        let got: IoError = sink_resident_bytes(&path, shape).unwrap_err();
        assert_eq!(got.to_string(), expected.to_string());
    }
}
