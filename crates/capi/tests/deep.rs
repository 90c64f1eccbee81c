//! Deep networks through the C interface, on the stack of a small thread of the host.

use std::fmt::Write;
use std::ptr::{null, null_mut};

use tiled_capi::*;

const SHAPE: [i64; 4] = [1, 1, 8, 8];

/// Convolutions of one channel, one after another.
fn chain(count: usize) -> String {
    let mut nodes = String::new();
    for number in 0..count {
        let input = if number == 0 { "x".to_owned() } else { format!("c{}", number - 1) };
        let comma = if number == 0 { "" } else { "," };
        write!(
            nodes,
            r#"{comma}{{"name":"c{number}","op":"conv2d","inputs":["{input}"],"out_channels":1,"kernel_size":3,"padding":1}}"#
        )
        .expect("a string takes all");
    }
    let last = count - 1;
    format!(r#"{{"inputs":[{{"name":"x","channels":1}}],"nodes":[{nodes}],"outputs":["c{last}"]}}"#)
}

fn made<H>(make: impl FnOnce(*mut *mut H) -> tiled_status) -> *mut H {
    let mut handle = null_mut();
    assert_eq!(make(&raw mut handle), TILED_STATUS_OK);
    handle
}

#[test]
fn r08_a_chain_of_six_thousand_convolutions_is_planned_and_dropped_on_a_small_stack() {
    let run = || {
        let json = chain(6000);
        // SAFETY: pointers are to live values, and handles are freed once
        unsafe {
            let engine = made(|out| tiled_engine_new(null(), out));
            let graph = made(|out| tiled_graph_from_json(json.as_ptr().cast(), json.len(), out));
            let weights = made(|out| tiled_weights_new(graph, TILED_DTYPE_F32, 1, out));
            let plan = made(|out| {
                tiled_plan_new(engine, graph, TILED_DTYPE_F32, SHAPE.as_ptr(), 1, null(), null(), out)
            });
            let executor = made(|out| tiled_executor_new(engine, plan, out));
            assert_eq!(tiled_executor_free(executor), TILED_STATUS_OK);
            assert_eq!(tiled_plan_free(plan), TILED_STATUS_OK);
            assert_eq!(tiled_weights_free(weights), TILED_STATUS_OK);
            assert_eq!(tiled_graph_free(graph), TILED_STATUS_OK);
            assert_eq!(tiled_engine_free(engine), TILED_STATUS_OK);
        }
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(run).expect("a thread");
    thread.join().expect("it ends");
}
