//! Every exported function is given NULL, wrong and freed handles, misaligned pointers, sizes of 0 and 2^63, and a panic
//! inside: it answers with a status and a message, and writes nothing.

use std::collections::BTreeSet;

use super::fixture::{Case, Fixture, Kind, Mutation, cases};
use super::{Injection, inject_panic};
use crate::*;

fn message() -> String {
    let mut bytes = vec![0_u8; 512];
    // SAFETY: the buffer has room for as many bytes as it is said to have
    let len = unsafe { tiled_last_error(bytes.as_mut_ptr().cast(), bytes.len()) };
    bytes.truncate(len.min(511));
    String::from_utf8(bytes).expect("messages are UTF-8")
}

#[test]
fn the_table_has_every_function_of_the_header() {
    let fixture = Fixture::new();
    let table: BTreeSet<&str> = cases(&fixture).iter().map(|case| case.name).collect();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(root.join("../../include/tiled.h")).expect("it is committed");
    // these take no pointer or handle that must be good, and have tests of their own
    let without_status = [
        "tiled_version",
        "tiled_version_string",
        "tiled_build_info",
        "tiled_live_handles",
        "tiled_last_error",
        "tiled_status_name",
    ];
    let declared: Vec<&str> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '/', '#']) && !line.starts_with("typedef"))
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("tiled_"))
        .collect();
    assert!(declared.len() > 80, "{} functions", declared.len());
    for name in declared {
        assert!(table.contains(name) || without_status.contains(&name), "`{name}` is not in the table");
    }
}

#[test]
fn every_function_succeeds_with_good_arguments() {
    let fixture = Fixture::new();
    for case in cases(&fixture) {
        assert_eq!(case.call(None), TILED_STATUS_OK, "{}: {}", case.name, message());
    }
}

#[test]
fn every_bad_argument_is_told_and_nothing_is_written() {
    let fixture = Fixture::new();
    let mut calls = 0;
    for case in cases(&fixture) {
        for (place, kind) in case.kinds().into_iter().enumerate() {
            for (mutation, allowed) in mutations(kind) {
                let before = case.outputs();
                let status = case.call(Some((place, mutation)));
                let what = format!("{} argument {place} {mutation:?}", case.name);
                assert!(allowed.contains(&status), "{what}: status {status}, {}", message());
                assert!(!message().is_empty(), "{what}: no message");
                assert_eq!(before, case.outputs(), "{what}: something was written");
                calls += 1;
            }
        }
    }
    eprintln!("{calls} calls with one bad argument each");
    assert!(calls > 300, "{calls} calls");
}

/// What is tried in place of an argument of this kind, and the statuses that are an answer.
fn mutations(kind: Kind) -> Vec<(Mutation, Vec<tiled_status>)> {
    let size = vec![
        TILED_STATUS_OUT_OF_RANGE,
        TILED_STATUS_INVALID_ARGUMENT,
        TILED_STATUS_SHAPE,
        TILED_STATUS_NETWORK,
        TILED_STATUS_DTYPE,
        TILED_STATUS_NOT_FOUND,
    ];
    match kind {
        Kind::Handle => vec![
            (Mutation::Null, vec![TILED_STATUS_NULL_POINTER]),
            (Mutation::WrongHandle, vec![TILED_STATUS_WRONG_HANDLE]),
            (Mutation::FreedHandle, vec![TILED_STATUS_INVALID_HANDLE, TILED_STATUS_WRONG_HANDLE]),
            (Mutation::Address, vec![TILED_STATUS_INVALID_HANDLE]),
        ],
        Kind::FreedHandle => vec![
            (Mutation::WrongHandle, vec![TILED_STATUS_WRONG_HANDLE]),
            (Mutation::FreedHandle, vec![TILED_STATUS_INVALID_HANDLE, TILED_STATUS_WRONG_HANDLE]),
            (Mutation::Address, vec![TILED_STATUS_INVALID_HANDLE]),
        ],
        Kind::Data => vec![
            (Mutation::Null, vec![TILED_STATUS_NULL_POINTER]),
            (Mutation::Misaligned, vec![TILED_STATUS_INVALID_ARGUMENT]),
        ],
        Kind::Text => vec![(Mutation::Null, vec![TILED_STATUS_NULL_POINTER])],
        Kind::Size => vec![(Mutation::Zero, size.clone()), (Mutation::Huge, size)],
        Kind::Index => vec![(Mutation::Huge, size)],
    }
}

#[test]
fn a_panic_at_entry_becomes_a_status_and_nothing_is_written() {
    let fixture = Fixture::new();
    for case in cases(&fixture) {
        let before = case.outputs();
        inject_panic(Some(Injection::AtEntry));
        assert_eq!(case.call(None), TILED_STATUS_PANIC, "{}", case.name);
        assert_eq!(message(), "internal error: injected panic", "{}", case.name);
        assert_eq!(before, case.outputs(), "{}: something was written", case.name);
        assert_eq!(case.call(None), TILED_STATUS_OK, "{}: {}", case.name, message());
    }
}

#[test]
fn a_panic_while_freeing_becomes_a_status() {
    use std::ptr::null_mut;
    let frees: [fn() -> tiled_status; 7] = [
        || tiled_grid_free(null_mut()),
        || tiled_engine_free(null_mut()),
        || tiled_graph_free(null_mut()),
        || tiled_weights_free(null_mut()),
        || tiled_plan_free(null_mut()),
        || tiled_executor_free(null_mut()),
        || tiled_trainer_free(null_mut()),
    ];
    for free in frees {
        inject_panic(Some(Injection::AtEntry));
        assert_eq!((free(), free()), (TILED_STATUS_PANIC, TILED_STATUS_OK));
    }
}

#[test]
fn a_panic_with_a_handle_in_hand_poisons_it_until_it_is_freed() {
    let names: Vec<&str> = cases(&Fixture::new()).iter().map(|case| case.name).collect();
    let mut poisoned = 0;
    for (place, name) in names.iter().enumerate() {
        if name.ends_with("_init") || name.starts_with("tiled_window") || name.starts_with("tiled_region") {
            continue; // they take no handle
        }
        let fixture = Fixture::new();
        let case: &Case<'_> = &cases(&fixture)[place];
        inject_panic(Some(Injection::WithHandle));
        let status = case.call(None);
        inject_panic(None);
        if status == TILED_STATUS_PANIC {
            assert_eq!(case.call(None), TILED_STATUS_POISONED, "{name}: {}", message());
            poisoned += 1;
        } else {
            assert_eq!(status, TILED_STATUS_OK, "{name}: {}", message());
        }
        fixture.free(); // poisoned or not, every handle can be freed
    }
    assert!(poisoned >= 14, "{poisoned} functions change a handle");
}

#[test]
fn sizes_in_structs_are_checked() {
    let fixture = Fixture::new();
    let bad = [0, -1, i64::MIN, i64::MAX];
    for value in bad {
        for axis in 0..2 {
            for change in [
                (|conv: &mut tiled_conv2d, axis: usize, value| conv.stride[axis] = value) as fn(&mut _, _, _),
                |conv, axis, value| conv.dilation[axis] = value,
                |conv, _, value| conv.groups = value,
                |conv, axis, value| conv.padding_before[axis] = if value == 0 { -1 } else { value },
                |conv, axis, value| conv.padding_after[axis] = if value == 0 { -1 } else { value },
            ] {
                let mut conv = fixture.conv();
                change(&mut conv, axis, value);
                assert_ne!(fixture.forward(&conv, &fixture.input()), TILED_STATUS_OK, "{conv:?}");
            }
        }
        for axis in 0..4 {
            let mut input = fixture.input();
            input.shape[axis] = value;
            assert_ne!(fixture.forward(&fixture.conv(), &input), TILED_STATUS_OK, "{input:?}");
            let mut input = fixture.input();
            if ![0, -1].contains(&value) {
                input.shape[axis] = 2;
                input.strides[axis] = value;
                assert_ne!(fixture.forward(&fixture.conv(), &input), TILED_STATUS_OK, "{input:?}");
            }
        }
    }
    let mut input = fixture.input();
    input.struct_size = 3;
    assert_eq!(fixture.forward(&fixture.conv(), &input), TILED_STATUS_INVALID_ARGUMENT);
    assert_eq!(message(), "struct_size of `tiled_tensor` is 3, at least 80 is wanted: was it initialised?");
    let mut input = fixture.input();
    input.dtype = TILED_DTYPE_F64;
    assert_eq!(fixture.forward(&fixture.conv(), &input), TILED_STATUS_DTYPE);
    let mut input = fixture.input();
    input.data = input.data.wrapping_byte_add(1);
    assert_eq!(fixture.forward(&fixture.conv(), &input), TILED_STATUS_INVALID_ARGUMENT);
    assert_eq!(fixture.forward(&fixture.conv(), &fixture.output()), TILED_STATUS_SHAPE);
}

#[test]
fn structs_of_newer_callers_are_taken_where_the_rest_is_zero() {
    #[repr(C)]
    struct Newer {
        known: tiled_conv2d,
        field: u64,
    }
    let fixture = Fixture::new();
    let mut newer = Newer { known: fixture.conv(), field: 0 };
    newer.known.struct_size = u32::try_from(size_of::<Newer>()).expect("small");
    let known = (&raw const newer).cast::<tiled_conv2d>();
    assert_eq!(fixture.forward_raw(known), TILED_STATUS_OK, "{}", message());
    newer.field = 1;
    let known = (&raw const newer).cast::<tiled_conv2d>();
    assert_eq!(fixture.forward_raw(known), TILED_STATUS_UNSUPPORTED);
}

#[test]
fn texts_without_status_never_fail() {
    assert_eq!(tiled_version(), 0x100);
    for status in -1..40 {
        // SAFETY: the text is static and ended by a NUL
        let name = unsafe { std::ffi::CStr::from_ptr(tiled_status_name(status)) };
        assert_eq!(
            name.to_str().is_ok_and(|name| name.starts_with("TILED_STATUS_")),
            (0..=TILED_STATUS_OTHER_DEVICE).contains(&status)
        );
    }
    // SAFETY: nothing is written without a buffer
    let len = unsafe { tiled_last_error(std::ptr::null_mut(), 0) };
    assert_eq!(len, message().len());
}
