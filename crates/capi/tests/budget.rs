//! The budget of a plan where C sets one, none, or none on purpose.

use std::ptr::{null, null_mut};

use tiled_capi::*;

/// A plan of a network of one channel on an image of this side, with what it states; or why there is none.
fn planned(side: i64, memory_bytes: u64) -> Result<tiled_plan_summary, (tiled_status, String)> {
    let json = br#"{"inputs": [{"name": "x", "channels": 1}], "nodes": [
        {"name": "a", "op": "relu", "inputs": ["x"]}, {"name": "b", "op": "tanh", "inputs": ["a"]}],
        "outputs": ["b"]}"#;
    let shape = [1, 1, side, side];
    let (mut engine, mut graph, mut plan) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the structs are plain numbers, which `init` sets; pointers are to live values
    unsafe {
        assert_eq!(tiled_engine_new(null(), &raw mut engine), TILED_STATUS_OK);
        assert_eq!(tiled_graph_from_json(json.as_ptr().cast(), json.len(), &raw mut graph), TILED_STATUS_OK);
        let mut options: tiled_plan_options = std::mem::zeroed();
        assert_eq!(tiled_plan_options_init(&raw mut options, size_of_u32(&options)), TILED_STATUS_OK);
        (options.hold, options.memory_bytes) = (TILED_HOLD_MATERIALISE, memory_bytes);
        let status = tiled_plan_new(
            engine,
            graph,
            TILED_DTYPE_F32,
            shape.as_ptr(),
            1,
            null(),
            &raw const options,
            &raw mut plan,
        );
        let mut summary: tiled_plan_summary = std::mem::zeroed();
        if status == TILED_STATUS_OK {
            assert_eq!(tiled_plan_summarise(plan, &raw mut summary, size_of_u32(&summary)), TILED_STATUS_OK);
        }
        assert_eq!(tiled_plan_free(plan), TILED_STATUS_OK);
        assert_eq!(tiled_graph_free(graph), TILED_STATUS_OK);
        assert_eq!(tiled_engine_free(engine), TILED_STATUS_OK);
        if status == TILED_STATUS_OK { Ok(summary) } else { Err((status, message())) }
    }
}

fn size_of_u32<T>(_: &T) -> u32 {
    u32::try_from(size_of::<T>()).expect("a small struct")
}

fn message() -> String {
    let mut bytes = vec![0_u8; 512];
    // SAFETY: the buffer has room for as many bytes as it is said to have
    let len = unsafe { tiled_last_error(bytes.as_mut_ptr().cast(), bytes.len()) };
    bytes.truncate(len.min(511));
    String::from_utf8(bytes).expect("messages are UTF-8")
}

#[test]
fn r01_without_a_budget_a_plan_takes_what_can_be_had() {
    let default = planned(64, 0).expect("a small plan");
    assert!(default.budget_source > TILED_BUDGET_UNLIMITED, "{default:?}");
    assert!(default.peak_bytes <= default.budget_bytes, "{default:?}");
    let given = planned(64, 1 << 30).expect("a small plan");
    assert_eq!((given.budget_bytes, given.budget_source), (1 << 30, TILED_BUDGET_GIVEN));
}

#[test]
fn r01_a_plan_that_no_machine_holds_is_refused_unless_it_is_asked_for() {
    let side = 1 << 29; // untiled 2^60 bytes
    let (status, message) = planned(side, 0).expect_err("no machine has so much");
    assert_eq!(status, TILED_STATUS_BUDGET, "{message}");
    assert!(
        message.starts_with("the run needs at least ") && message.contains(" can be had now ("),
        "{message}"
    );
    let unlimited = planned(side, TILED_MEMORY_UNLIMITED).expect("nothing is allocated");
    assert!(unlimited.peak_bytes >= 1 << 60, "{unlimited:?}");
    let said = (unlimited.budget_bytes, unlimited.budget_source);
    assert_eq!(said, (TILED_MEMORY_UNLIMITED, TILED_BUDGET_UNLIMITED));
}

#[test]
fn r01_a_summary_of_the_first_version_is_filled_as_far_as_it_goes() {
    let whole = planned(64, 1 << 30).expect("a small plan");
    assert_eq!(size_of_u32(&whole), 120);
    assert_eq!(std::mem::offset_of!(tiled_plan_summary, budget_bytes), 88);
}
