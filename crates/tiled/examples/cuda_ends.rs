//! Times a network on a GPU whose image and result lie in memory of the host, and on the device, in turns: what a program that has them there
//! waits for. Prints one JSON object: seconds of both ends (the median, or the first run where there is no other), what was predicted, and
//! the bytes of the plan on the device.
//!
//! ```text
//! cargo run --release -p tiled --features cuda --example cuda_ends -- vgg16 20480 8589934592 cuda 3 grad auto host,device
//! ```
//!
//! Arguments: network, extent of the square image, bytes of the device, device (`cuda`, `cuda:N` or `cuda-sim`,
//! with `+tf32` or `+f32x3` for tensor cores), runs of each after a first one, `grad` for all gradients or `run` for the output, `auto` or
//! `materialise` for whole tensors, and the ends.

#![expect(clippy::print_stdout, reason = "its line is its result")]

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use tiled::cuda::driver::gpu::Gpu;
use tiled::cuda::driver::{Copy, Driver, Memory, Rows, Way};
use tiled::cuda::{CudaBackend, Precision};
use tiled::exec::{ConstantSource, DeviceSink, DeviceSource, SliceSink};
use tiled::graph::Hold;
use tiled::prelude::*;
use tiled::tensor::DeviceTensor;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [network, extent, memory, device, runs, mode, hold, ends] = arguments.as_slice() else {
        return Err("wants a network, an extent, bytes, a device, a number of runs, `grad` or `run`, `auto` or `materialise`, and ends".into());
    };
    let (extent, runs): (usize, usize) = (extent.parse()?, runs.parse()?);
    let (place, precision) = device.split_once('+').unwrap_or((device, "f32"));
    let driver = open(place)?;
    let backend = CudaBackend::with_precision(Arc::clone(&driver), precision.parse::<Precision>()?);
    let network = Graph::builtin(network).ok_or("no such network")?;
    let shape = [1, network.inputs()[0].channels, extent, extent];
    let shapes = infer_nchw(&network, &[shape])?;
    let outputs: Vec<[usize; 4]> = network.outputs().iter().map(|output| shapes.shape(*output)).collect();
    let is_grad = mode == "grad";
    let objective = if is_grad {
        Objective { mode: Mode::Eval, grad_inputs: true, ..Objective::gradients() }
    } else {
        Objective::inference()
    };
    let result = if is_grad { shape } else { outputs[0] };
    let threads = std::thread::available_parallelism()?.get();
    let options = PlanOptions {
        memory_bytes: Some(memory.parse()?),
        hold: if hold == "materialise" { Hold::Materialise } else { Hold::Auto },
        parallelism: threads,
        ..PlanOptions::default()
    };
    // before the device has anything to do, so that whoever watches it sees the run alone
    let pattern: Vec<f32> = (0..1_u32 << 20).map(|i| f32::from((i % 251) as u8) / 125.0 - 1.0).collect();
    let image: Vec<f32> = pattern.iter().copied().cycle().take(shape.iter().product()).collect();
    let mut values = vec![1.0_f32; result.iter().product()];
    let plan = Planner::<f32>::new(&network, &shapes, &objective, &backend).plan(&options)?;
    let (predicted, bytes) = (plan.predicted_seconds, plan.peak_bytes());
    let mut executor = Executor::new(plan, &backend, threads)?;
    let mut parameters = initialise::<f32>(&params(&network), 1);
    let ones = outputs.iter().map(|shape| ConstantSource::ones(*shape)).collect::<Result<Vec<_>, _>>()?;

    let lent = if ends.contains("device") { Some(Lent::new(driver.as_ref(), &image, result)?) } else { None };
    let mut told = Vec::new();
    for end in ends.split(',') {
        let mut all = Vec::new();
        for _ in 0..=runs {
            let begin = Instant::now();
            let mut run = |source: &dyn Source<f32>, sink: &dyn Sink<f32>| {
                let mut io = Io { inputs: vec![source], ..Io::default() };
                if is_grad {
                    io.grad_outputs = ones.iter().map(|source| -> &dyn Source<f32> { source }).collect();
                    io.grad_inputs = vec![sink];
                } else {
                    io.outputs = vec![sink];
                }
                executor.run(&mut parameters, &io, &NoProgress)
            };
            if let Some(lent) = lent.as_ref().filter(|_| end == "device") {
                let [image, values] = lent.tensors([shape, result])?;
                run(&DeviceSource::new(image), &DeviceSink::new(values)?)?;
            } else {
                run(&MemorySource::new(&image, shape)?, &SliceSink::new(&mut values, result)?)?;
            }
            all.push(begin.elapsed().as_secs_f64());
        }
        if runs > 0 {
            all.remove(0);
        }
        all.sort_by(f64::total_cmp);
        told.push(format!("\"{end}\": {}", all[all.len() / 2]));
    }
    println!("{{{}, \"predicted\": {predicted}, \"bytes\": {bytes}}}", told.join(", "));
    Ok(())
}

fn open(device: &str) -> Result<Arc<dyn Driver>, Box<dyn Error>> {
    #[cfg(unix)]
    if device == "cuda-sim" {
        use tiled::cuda::driver::Facts;
        use tiled::cuda::driver::simulated::{Order, Simulated};
        return Ok(Arc::new(Simulated::new(Facts::h200(), Order::Forward)?));
    }
    let index = device.strip_prefix("cuda").ok_or_else(|| format!("unknown device `{device}`"))?;
    let index = index.trim_start_matches(':');
    Ok(Arc::new(Gpu::new(if index.is_empty() { 0 } else { index.parse()? })?))
}

/// Elements that are copied to the device at a time.
const PIECE: usize = 16 << 20;

/// The image and the result in memory of the device.
struct Lent<'d> {
    driver: &'d dyn Driver,
    memory: Vec<Memory>,
}

impl<'d> Lent<'d> {
    fn new(driver: &'d dyn Driver, image: &[f32], result: [usize; 4]) -> Result<Self, Box<dyn Error>> {
        let bytes = result.iter().product::<usize>() * size_of::<f32>();
        let memory = vec![driver.allocate(size_of_val(image))?, driver.allocate(bytes)?];
        let (stream, pinned) = (driver.create_stream()?, driver.allocate_pinned(PIECE * size_of::<f32>())?);
        for (number, piece) in image.chunks(PIECE).enumerate() {
            // SAFETY: pinned memory of so many elements, of which nothing is under way
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), pinned.address as *mut f32, piece.len()) };
            let bytes = size_of_val(piece);
            let rows = |address| Rows { address, row_bytes: bytes, plane_bytes: bytes };
            let to = rows(memory[0].address + (number * PIECE * size_of::<f32>()) as u64);
            let copy = Copy { way: Way::In, from: rows(pinned.address), to, bytes, rows: 1, planes: 1 };
            // SAFETY: both are so long, and it is waited for
            unsafe { driver.copy(stream, &copy) }?;
            driver.synchronise(stream)?;
        }
        driver.free_pinned(pinned);
        driver.destroy_stream(stream);
        Ok(Self { driver, memory })
    }

    fn tensors(&self, shapes: [[usize; 4]; 2]) -> Result<[DeviceTensor<f32>; 2], Box<dyn Error>> {
        let tensor = |memory: &Memory, shape: [usize; 4]| {
            let [_, channels, height, width] = shape.map(usize::cast_signed);
            let strides = [channels * height * width, height * width, width, 1];
            // SAFETY: memory of the device that stays allocated for as long as this, of which no stream of a caller is asked anything
            unsafe { DeviceTensor::new(self.driver.device(), memory.address, shape, strides, 0) }
        };
        Ok([tensor(&self.memory[0], shapes[0])?, tensor(&self.memory[1], shapes[1])?])
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        for memory in self.memory.drain(..) {
            self.driver.free(memory);
        }
    }
}
