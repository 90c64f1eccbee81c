//! Headers of `.npy` files, honest and not.

use std::path::Path;

use proptest::prelude::*;
use tiled_exec::{FileSource, IoError, NpyHeader, NpyProblem, Numbers, Source, open_source, peak_rss_bytes};
use tiled_tensor::DType;

use crate::windows::read_all;

/// A file of version 1.0 with this header, not padded.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

fn open(bytes: &[u8]) -> Result<FileSource, IoError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    std::fs::write(&path, bytes).unwrap();
    FileSource::open_npy(&path)
}

fn shape(source: &FileSource) -> [usize; 4] {
    Source::<f32>::shape(source)
}

/// What the header says, or why it is refused.
fn problem(header: &str) -> String {
    let bytes = file(header, &[0; 24]);
    match open(&bytes) {
        Ok(source) => format!("{:?}", shape(&source)),
        Err(IoError::Npy { problem, .. }) => problem.to_string(),
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn the_header_is_byte_for_byte_that_of_numpy() {
    // numpy.save of numpy.zeros((2, 3, 5, 7), "<f4"), NumPy 2.4.
    let numpy = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 5, 7), }";
    let header = NpyHeader::format(&[2, 3, 5, 7], DType::F32).unwrap();
    assert!(header.starts_with(numpy));
    assert_eq!(header.len(), 128);
    assert!(header[numpy.len()..127].iter().all(|byte| *byte == b' '));
    assert_eq!(header[127], b'\n');
    assert_eq!(NpyHeader::parse(&NpyHeader::format(&[5], DType::F64).unwrap()).unwrap().shape(), [5]);
    assert_eq!(NpyHeader::parse(&NpyHeader::format(&[], DType::F64).unwrap()).unwrap().shape(), [0_usize; 0]);
}

#[test]
fn missing_axes_are_one() {
    for (axes, expected) in
        [("(2, 3, 4, 5)", [2, 3, 4, 5]), ("(3, 4, 5)", [1, 3, 4, 5]), ("(4, 5)", [1, 1, 4, 5])]
    {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {axes}, }}\n");
        let data = vec![0; 4 * expected.iter().product::<usize>()];
        assert_eq!(shape(&open(&file(&header, &data)).unwrap()), expected);
    }
}

#[test]
fn versions_two_and_three_have_a_longer_length() {
    for version in [2, 3] {
        let header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2), }   \n";
        let mut bytes = b"\x93NUMPY".to_vec();
        bytes.extend([version, 0]);
        bytes.extend(u32::try_from(header.len()).unwrap().to_le_bytes());
        bytes.extend(header);
        bytes.extend([1.5_f64.to_le_bytes(), (-2.0_f64).to_le_bytes()].concat());
        let source = open(&bytes).unwrap();
        assert_eq!(read_all::<f64>(&source).data(), [1.5, -2.0]);
    }
}

#[test]
fn bytes_are_plain_numbers_where_that_is_asked_for() {
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }\n";
    let source = open(&file(header, &[0, 1, 127, 128, 254, 255])).unwrap().with_numbers(Numbers::AsIs);
    assert_eq!(read_all::<f32>(&source).data(), [0.0, 1.0, 127.0, 128.0, 254.0, 255.0]);
    assert_eq!(read_all::<f64>(&source).data(), [0.0, 1.0, 127.0, 128.0, 254.0, 255.0]);
}

#[test]
fn headers_are_read_in_any_order_and_spacing() {
    for header in [
        "{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<f4\"}",
        "  { 'fortran_order' : False , 'descr' : '<f4' , 'shape' : ( 2 , 3 , ) , }  \n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }",
    ] {
        assert_eq!(problem(header), "[1, 1, 2, 3]", "{header}");
    }
}

#[test]
fn headers_that_cannot_be_used_say_why() {
    let cases = [
        (
            "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }",
            "npy type `>f4` is big-endian, only little-endian is read",
        ),
        (
            "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }",
            "npy array is in Fortran order, only C order is read",
        ),
        (
            "{'descr': '<c8', 'fortran_order': False, 'shape': (2, 3), }",
            "npy type `<c8` is not read, known are `<f2`, `<f4`, `<f8`, `|u1`, `|i1`, `<u2`, `<i2`, `<u4`, `<i4`, `<u8`, `<i8`",
        ),
        (
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3), }",
            "npy type `structured` is not read, known are `<f2`, `<f4`, `<f8`, `|u1`, `|i1`, `<u2`, `<i2`, `<u4`, `<i4`, `<u8`, `<i8`",
        ),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }",
            "npy array has 1 axes, wanted are NCHW, CHW or HW",
        ),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (), }",
            "npy array has 0 axes, wanted are NCHW, CHW or HW",
        ),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 2, 3), }",
            "npy array has 5 axes, wanted are NCHW, CHW or HW",
        ),
        ("{'descr': '<f4', 'fortran_order': False, }", "npy header has no `shape`"),
        ("{'descr': '<f4', 'shape': (2, 3)}", "npy header has no `fortran_order`"),
        ("{}", "npy header has no `descr`"),
        ("{'descr': '<f4', 'colour': 3}", "npy header has an unknown or repeated key `colour`"),
        ("{'descr': '<f4', 'descr': '<f4'}", "npy header has an unknown or repeated key `descr`"),
        ("{'descr': '<f4' 'shape': (2, 3)}", "npy header is malformed at byte 16: `,` or `}` expected"),
        ("{'shape': (2, -3)}", "npy header is malformed at byte 14: an extent that fits 64 bits expected"),
        (
            "{'shape': (2, 99999999999999999999)}",
            "npy header is malformed at byte 14: an extent that fits 64 bits expected",
        ),
        ("{'shape': (2 3)}", "npy header is malformed at byte 13: `,` or `)` expected"),
        ("{'descr: }", "npy header is malformed at byte 1: a closing quote expected"),
        ("{'fortran_order': 0}", "npy header is malformed at byte 18: `True` or `False` expected"),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} x",
            "npy header is malformed at byte 58: the end of the header expected",
        ),
        ("", "npy header is malformed at byte 0: `{` expected"),
    ];
    for (header, expected) in cases {
        assert_eq!(problem(header), expected, "{header}");
    }
    let axes = "1, ".repeat(100);
    let text = problem(&format!("{{'shape': ({axes}), 'descr': '<f4'}}"));
    assert!(text.ends_with("at most 64 axes expected"), "{text}");
}

#[test]
fn files_of_other_formats_are_told_apart() {
    for bytes in [&b"\x89PNG\r\n\x1a\n and more"[..], b"PK\x03\x04 an npz file", b"\x93NUMPX\x01\x00"] {
        assert!(matches!(open(bytes), Err(IoError::Npy { problem: NpyProblem::Magic, .. })));
    }
    let mut bytes = file("{}", &[]);
    bytes[6..8].copy_from_slice(&[4, 1]);
    let IoError::Npy { problem, .. } = open(&bytes).unwrap_err() else { panic!("no npy error") };
    assert_eq!(problem.to_string(), "npy version 4.1 is unknown, known are 1.0, 2.0 and 3.0");
    let mut bytes = b"\x93NUMPY\x02\x00".to_vec();
    bytes.extend(u32::MAX.to_le_bytes());
    let IoError::Npy { problem, .. } = open(&bytes).unwrap_err() else { panic!("no npy error") };
    assert_eq!(problem.to_string(), "npy header has 4294967307 bytes, at most 65545 are read");
}

#[test]
fn a_file_cut_anywhere_is_truncated() {
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
    let bytes = file(header, &[0; 24]);
    open(&bytes).unwrap();
    for len in 0..bytes.len() {
        match open(&bytes[..len]).unwrap_err() {
            IoError::Truncated { expected, got, .. } => {
                assert_eq!(got, len as u64);
                assert!(expected > got && expected <= bytes.len() as u64, "{expected} of {len}");
            }
            error => panic!("{len}: {error:?}"),
        }
    }
}

#[test]
fn a_truncated_file_says_both_lengths() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.npy");
    let mut bytes = NpyHeader::format(&[3, 100, 100], DType::F32).unwrap();
    bytes.resize(5000, 0);
    std::fs::write(&path, bytes).unwrap();
    let error = open_source::<f32>(&path).map(drop).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("`{}`: truncated: 120128 bytes expected, 5000 bytes found", path.display())
    );
}

#[test]
fn a_header_of_a_huge_array_takes_no_memory() {
    let before = peak_rss_bytes();
    for axes in
        ["(1, 4000000000)", "(3, 1000000000, 1000000000)", "(18446744073709551615, 18446744073709551615)"]
    {
        let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {axes}, }}\n");
        let error = open(&file(&header, &[0; 100])).unwrap_err();
        assert!(matches!(error, IoError::Truncated { .. } | IoError::Overflow { .. }), "{error:?}");
    }
    if let (Some(before), Some(after)) = (before, peak_rss_bytes()) {
        // Other tests of this process run beside it; an array of 32 GB would show.
        assert!(after.saturating_sub(before) < 1 << 30);
    }
}

fn write(folder: &Path, bytes: &[u8]) -> std::path::PathBuf {
    let path = folder.join("fuzzed.npy");
    std::fs::write(&path, bytes).unwrap();
    path
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_a_header_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), magic in 0..4_u8) {
        let mut file = match magic {
            0 => Vec::new(),
            version => [&b"\x93NUMPY"[..], &[version, 0]].concat(),
        };
        file.extend(bytes);
        let _ = NpyHeader::parse(&file);
    }

    #[test]
    fn a_changed_header_is_a_header_or_an_error(
        changes in prop::collection::vec((6..200_usize, any::<u8>()), 1..4),
        text in prop::collection::vec(prop::sample::select(&b"{}()[],:'\" 0123456789LTrueFals<>|fu48"[..]), 0..12),
        at in 10..70_usize,
    ) {
        let mut bytes = NpyHeader::format(&[2, 3, 4, 5], DType::F32).unwrap();
        bytes.extend([0; 480]);
        for (index, byte) in changes {
            bytes[index] = byte;
        }
        bytes.splice(at..at + text.len(), text);
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), &bytes);
        if let Ok(source) = FileSource::open_npy(&path) {
            // What opens fits the file, so that it can be read in full.
            let elements: usize = shape(&source).iter().product();
            prop_assert!(elements <= bytes.len());
            prop_assert_eq!(read_all::<f32>(&source).data().len(), elements);
        }
    }
}
