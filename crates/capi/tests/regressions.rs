//! What once went wrong, mostly found by random sequences of calls.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use tiled_capi::*;

const SHAPE: [i64; 4] = [1, 1, 8, 8];

fn made<H>(make: impl FnOnce(*mut *mut H) -> tiled_status) -> *mut H {
    let mut handle = null_mut();
    assert_eq!(make(&raw mut handle), TILED_STATUS_OK);
    handle
}

fn initial<S>(init: unsafe extern "C" fn(*mut S, u32) -> tiled_status) -> S {
    let mut value = std::mem::MaybeUninit::<S>::uninit();
    // SAFETY: there is room for the struct, all of which `init` writes
    unsafe {
        assert_eq!(init(value.as_mut_ptr(), u32::try_from(size_of::<S>()).expect("small")), TILED_STATUS_OK);
        value.assume_init()
    }
}

fn message() -> String {
    let mut bytes = vec![0_u8; 512];
    // SAFETY: the buffer has room for as many bytes as it is said to have
    let len = unsafe { tiled_last_error(bytes.as_mut_ptr().cast(), bytes.len()) };
    bytes.truncate(len.min(511));
    String::from_utf8(bytes).expect("messages are UTF-8")
}

/// An engine, a network with two outputs of the input's shape, its weights and a plan.
struct Network {
    engine: *mut tiled_engine,
    graph: *mut tiled_graph,
    weights: *mut tiled_weights,
    plan: *mut tiled_plan,
}

fn engine(isa: *const std::ffi::c_char) -> *mut tiled_engine {
    let options = tiled_engine_options { threads: 1, isa, ..initial(tiled_engine_options_init) };
    // SAFETY: pointers are to live values
    made(|out| unsafe { tiled_engine_new(&raw const options, out) })
}

impl Network {
    fn new(options: &tiled_plan_options) -> Self {
        let json = br#"{"inputs": [{"name": "x", "channels": 1}], "nodes": [
            {"name": "a", "op": "relu", "inputs": ["x"]}, {"name": "b", "op": "tanh", "inputs": ["a"]}],
            "outputs": ["a", "b"]}"#;
        let engine = engine(null());
        // SAFETY: pointers are to live values
        unsafe {
            let graph = made(|out| tiled_graph_from_json(json.as_ptr().cast(), json.len(), out));
            let weights = made(|out| tiled_weights_new(graph, TILED_DTYPE_F32, 1, out));
            let plan = made(|out| {
                tiled_plan_new(engine, graph, TILED_DTYPE_F32, SHAPE.as_ptr(), 1, null(), options, out)
            });
            Self { engine, graph, weights, plan }
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        assert_eq!(tiled_plan_free(self.plan), TILED_STATUS_OK);
        assert_eq!(tiled_weights_free(self.weights), TILED_STATUS_OK);
        assert_eq!(tiled_graph_free(self.graph), TILED_STATUS_OK);
        assert_eq!(tiled_engine_free(self.engine), TILED_STATUS_OK);
    }
}

unsafe extern "C" fn take(_: *mut c_void, _: tiled_region, _: *const tiled_tensor) -> i32 {
    0
}

/// Notes what it hears, and fails where it is told that all is complete and `fails` says so.
struct Ends {
    heard: Mutex<Vec<i32>>,
    fails: bool,
}

unsafe extern "C" fn end(user: *mut c_void, is_complete: i32) -> i32 {
    // SAFETY: `user` is a live `Ends`
    let ends = unsafe { &*user.cast::<Ends>() };
    ends.heard.lock().expect("nothing panics").push(is_complete);
    i32::from(ends.fails)
}

fn sink(ends: &Ends) -> tiled_sink {
    let mut sink: tiled_sink = initial(tiled_sink_init);
    sink.tensor.shape = SHAPE;
    sink.write = Some(take);
    sink.end = Some(end);
    sink.user = std::ptr::from_ref(ends).cast_mut().cast();
    sink
}

#[test]
fn a_sink_hears_one_end_also_where_another_fails_at_its_own() {
    let network = Network::new(&initial(tiled_plan_options_init));
    // SAFETY: pointers are to live values
    let executor = made(|out| unsafe { tiled_executor_new(network.engine, network.plan, out) });
    let image = [1.0_f32; 64];
    let mut source: tiled_source = initial(tiled_source_init);
    source.tensor.data = image.as_ptr().cast_mut().cast();
    (source.tensor.shape, source.tensor.strides) = (SHAPE, [64, 64, 8, 1]);
    let ends = [false, true, false].map(|fails| Ends { heard: Mutex::default(), fails });
    for (which, heard) in [([0, 2], [vec![1], vec![], vec![1]]), ([0, 1], [vec![1, 1], vec![1], vec![1]])] {
        let sinks = which.map(|place: usize| sink(&ends[place]));
        let io = tiled_io {
            inputs: &raw const source,
            input_count: 1,
            outputs: sinks.as_ptr(),
            output_count: 2,
            ..initial(tiled_io_init)
        };
        // SAFETY: pointers are to live values
        let status = unsafe { tiled_executor_run(executor, network.weights, &raw const io, null_mut()) };
        let wanted = if which[1] == 1 { TILED_STATUS_CALLBACK } else { TILED_STATUS_OK };
        assert_eq!(status, wanted, "{}", message());
        let got = [0, 1, 2].map(|place: usize| ends[place].heard.lock().expect("nothing panics").clone());
        assert_eq!(got, heard);
    }
    assert_eq!(tiled_executor_free(executor), TILED_STATUS_OK);
}

#[test]
fn a_plan_of_another_backend_is_refused() {
    let network = Network::new(&initial(tiled_plan_options_init));
    let other = engine(c"reference".as_ptr());
    let mut executor = null_mut();
    // SAFETY: pointers are to live values
    let status = unsafe { tiled_executor_new(other, network.plan, &raw mut executor) };
    assert_eq!((status, executor), (TILED_STATUS_INVALID_ARGUMENT, null_mut()));
    assert!(message().contains("the engine's is `reference`"), "{}", message());
    assert_eq!(tiled_engine_free(other), TILED_STATUS_OK);
}

#[test]
fn memory_that_the_caller_holds_is_not_asked_for_again() {
    let memory_bytes = TILED_MEMORY_UNLIMITED; // or the budget would be what the machine has
    let options =
        tiled_plan_options { memory_bytes, resident_bytes: 1 << 62, ..initial(tiled_plan_options_init) };
    let network = Network::new(&options);
    // SAFETY: pointers are to live values
    let executor = made(|out| unsafe { tiled_executor_new(network.engine, network.plan, out) });
    assert_eq!(tiled_executor_free(executor), TILED_STATUS_OK);
}

#[test]
fn a_report_or_a_tensor_that_was_not_initialised_is_told_before_anything_is_written() {
    let network = Network::new(&initial(tiled_plan_options_init));
    // SAFETY: pointers are to live values
    let executor = made(|out| unsafe { tiled_executor_new(network.engine, network.plan, out) });
    let (image, mut results) = ([1.0_f32; 64], [[7.0_f32; 64]; 2]);
    let mut source: tiled_source = initial(tiled_source_init);
    source.tensor.data = image.as_ptr().cast_mut().cast();
    (source.tensor.shape, source.tensor.strides) = (SHAPE, [64, 64, 8, 1]);
    let starts = results.each_mut().map(|result| result.as_mut_ptr());
    let mut sinks = starts.map(|start| {
        let mut sink: tiled_sink = initial(tiled_sink_init);
        sink.tensor = tiled_tensor { data: start.cast(), ..source.tensor };
        sink
    });
    let mut report = tiled_report { struct_size: 1 << 20, has_loss: 0, loss: 0.0, seconds: 0.0 };
    for size in [80, 0] {
        sinks[0].tensor.struct_size = size;
        let io = tiled_io {
            inputs: &raw const source,
            input_count: 1,
            outputs: sinks.as_ptr(),
            output_count: 2,
            ..initial(tiled_io_init)
        };
        // SAFETY: pointers are to live values; the report's size is refused before it is written
        let status = unsafe { tiled_executor_run(executor, network.weights, &raw const io, &raw mut report) };
        assert_eq!(status, TILED_STATUS_INVALID_ARGUMENT, "{}", message());
        assert!(message().contains("was it initialised?"), "{}", message());
        report.struct_size = u32::try_from(size_of::<tiled_report>()).expect("small");
    }
    assert_eq!(tiled_executor_free(executor), TILED_STATUS_OK);
    assert_eq!(results, [[7.0; 64]; 2]);
}
