//! What sinks will hold is known before there are any.

use tiled_exec::{ElementType, IoError, Sink, SinkOptions, create_sink_with, sink_resident_bytes};

#[test]
fn r06_what_a_sink_holds_is_known_before_it_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let options = SinkOptions::default();
    let wide = SinkOptions { element: Some(ElementType::U16), ..options };
    let filed = SinkOptions { limit_bytes: 100, ..wide };
    for name in ["y.npy", "y.raw", "y.bin", "y.png", "Y.PNG"] {
        for (shape, options) in [([1, 3, 40, 50], options), ([1, 1, 7, 9], wide), ([1, 1, 7, 9], filed)] {
            let path = folder.path().join(name);
            let known = sink_resident_bytes(&path, shape, &options).unwrap();
            assert_eq!(folder.path().read_dir().unwrap().count(), 0, "nothing is made");
            let sink = create_sink_with::<f32>(&path, shape, &options).unwrap();
            assert_eq!(known, sink.resident_bytes(), "{name} {shape:?}");
        }
    }
    assert_eq!(sink_resident_bytes("y.png", [1, 3, 40, 50], &wide).unwrap(), 12_000);
    assert_eq!(sink_resident_bytes("y.png", [1, 3, 40, 50], &filed).unwrap(), 0);
    for (name, shape) in
        [("y.jpg", [1, 3, 4, 5]), ("y", [1, 3, 4, 5]), ("y.png", [2, 3, 4, 5]), ("y.png", [1, 2, 4, 5])]
    {
        let path = folder.path().join(name);
        let expected = create_sink_with::<f32>(&path, shape, &options).map(drop).unwrap_err();
        let got: IoError = sink_resident_bytes(&path, shape, &options).unwrap_err();
        assert_eq!(got.to_string(), expected.to_string());
    }
}
