//! What the ABI adds to a call: a 1×16×16 convolution through C functions and through the Rust calls behind them.
//!
//! `cargo run --release -p tiled-capi --example overhead`; medians of 2000 calls each, interleaved.

#![expect(clippy::print_stdout, reason = "an example prints")]
#![expect(clippy::cast_possible_truncation, reason = "sizes of structs are small")]

use std::error::Error;
use std::hint::black_box;
use std::ptr::{null, null_mut};
use std::time::Instant;

use tiled::exec::SliceSink;
use tiled::graph::{Conv2d, Op};
use tiled::ops::{Options, Weights};
use tiled::prelude::*;
use tiled_capi::*;

const CALLS: usize = 2000;
const SHAPE: [usize; 4] = [1, 1, 16, 16];

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2] * 1e6
}

/// Times two bodies by turns, so that the machine's moods meet both. Microseconds.
fn compare(mut rust: impl FnMut(), mut abi: impl FnMut()) -> [f64; 2] {
    let mut times = [Vec::new(), Vec::new()];
    for call in 0..CALLS + 100 {
        let begin = Instant::now();
        rust();
        let middle = Instant::now();
        abi();
        if call >= 100 {
            times[0].push((middle - begin).as_secs_f64());
            times[1].push(middle.elapsed().as_secs_f64());
        }
    }
    times.map(median)
}

fn report(what: &str, [rust, abi]: [f64; 2]) {
    println!("{what}: Rust {rust:.2} us, C {abi:.2} us, overhead {:.2} us", abi - rust);
}

fn main() -> Result<(), Box<dyn Error>> {
    let x = [1.0_f32; 256];
    let w = [0.5_f32; 9];
    let (mut rust_y, mut c_y) = ([0.0_f32; 256], [0.0_f32; 256]);

    let conv = Conv2d { bias: false, ..Conv2d::new(1, [3, 3]).padded([1, 1]) };
    let backend = CpuBackend::new()?;
    let mut operators = tiled::ops::Engine::new(&backend, 1)?;
    let rust = || {
        let source = MemorySource::new(&x, SHAPE).expect("it fits");
        let weight = MemorySource::new(&w, [1, 1, 3, 3]).expect("it fits");
        let sink = SliceSink::new(&mut rust_y, SHAPE).expect("it fits");
        let weights = Weights { weight: &weight, bias: None };
        operators.conv2d(&conv, None, &Options::default(), &source, &weights, &sink).expect("it runs");
        black_box(&rust_y);
    };
    // SAFETY: every pointer is to a live value of its type, and tensors are as large as they say
    unsafe {
        let mut options = std::mem::zeroed::<tiled_engine_options>();
        tiled_engine_options_init(&raw mut options, size_of::<tiled_engine_options>() as u32);
        options.threads = 1;
        let mut engine = null_mut();
        assert_eq!(tiled_engine_new(&raw const options, &raw mut engine), TILED_STATUS_OK);
        let mut attributes = std::mem::zeroed::<tiled_conv2d>();
        tiled_conv2d_init(&raw mut attributes, size_of::<tiled_conv2d>() as u32);
        attributes.padding_before = [1, 1];
        attributes.padding_after = [1, 1];
        let tensor = |data: *const f32, shape: [i64; 4]| {
            let mut tensor = std::mem::zeroed::<tiled_tensor>();
            let size = size_of::<tiled_tensor>() as u32;
            let data = data.cast_mut().cast();
            assert_eq!(
                tiled_tensor_contiguous(TILED_DTYPE_F32, data, shape.as_ptr(), &raw mut tensor, size),
                TILED_STATUS_OK
            );
            tensor
        };
        let (input, weight) = (tensor(x.as_ptr(), [1, 1, 16, 16]), tensor(w.as_ptr(), [1, 1, 3, 3]));
        let output = tensor(c_y.as_mut_ptr(), [1, 1, 16, 16]);
        let abi = || {
            let status = tiled_conv2d_forward(
                engine,
                &raw const attributes,
                null(),
                &raw const input,
                &raw const weight,
                null(),
                &raw const output,
            );
            assert_eq!(status, TILED_STATUS_OK);
        };
        report("tiled_conv2d_forward", compare(rust, abi));

        // the run of a planned network of the same convolution
        let mut graph = Graph::new();
        let value = graph.add_input("x", 1)?;
        let value = graph.add_node("c", Op::Conv2d(conv.clone()), &[value])?;
        graph.set_outputs(&[value])?;
        let shapes = infer(&graph, 1, &[[16, 16]])?;
        let plan = Planner::<f32>::new(&graph, &shapes, &Objective::inference(), &backend)
            .plan(&PlanOptions::default())?;
        let mut parameters = initialise::<f32>(&params(&graph), 1);
        let mut executor = Executor::new(plan, &backend, 1)?;
        let json = graph.to_json();
        let (mut c_graph, mut c_plan, mut c_weights, mut c_executor) =
            (null_mut(), null_mut(), null_mut(), null_mut());
        let shape = [1_i64, 1, 16, 16];
        assert_eq!(
            tiled_graph_from_json(json.as_ptr().cast(), json.len(), &raw mut c_graph),
            TILED_STATUS_OK
        );
        assert_eq!(tiled_weights_new(c_graph, TILED_DTYPE_F32, 1, &raw mut c_weights), TILED_STATUS_OK);
        let planned = tiled_plan_new(
            engine,
            c_graph,
            TILED_DTYPE_F32,
            shape.as_ptr(),
            1,
            null(),
            null(),
            &raw mut c_plan,
        );
        assert_eq!(planned, TILED_STATUS_OK);
        assert_eq!(tiled_executor_new(engine, c_plan, &raw mut c_executor), TILED_STATUS_OK);
        let mut source = std::mem::zeroed::<tiled_source>();
        let mut sink = std::mem::zeroed::<tiled_sink>();
        let mut io = std::mem::zeroed::<tiled_io>();
        tiled_source_init(&raw mut source, size_of::<tiled_source>() as u32);
        tiled_sink_init(&raw mut sink, size_of::<tiled_sink>() as u32);
        tiled_io_init(&raw mut io, size_of::<tiled_io>() as u32);
        (source.tensor, sink.tensor) = (input, output);
        (io.inputs, io.input_count, io.outputs, io.output_count) = (&raw const source, 1, &raw const sink, 1);
        let mut rust_y = [0.0_f32; 256];
        let rust = || {
            let source = MemorySource::new(&x, SHAPE).expect("it fits");
            let sink = SliceSink::new(&mut rust_y, SHAPE).expect("it fits");
            let io = Io { inputs: vec![&source], outputs: vec![&sink], ..Io::default() };
            executor.run(&mut parameters, &io, &NoProgress).expect("it runs");
        };
        let abi = || {
            assert_eq!(tiled_executor_run(c_executor, c_weights, &raw const io, null_mut()), TILED_STATUS_OK)
        };
        report("tiled_executor_run", compare(rust, abi));
    }
    Ok(())
}
