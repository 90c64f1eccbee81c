//! Times a forward and a backward pass of a network on a GPU whose image and gradient lie in memory of the host, and on the device, in turns.
//! Prints one JSON object: the median seconds of each.
//!
//! ```text
//! cargo run --release -p tiled --features cuda --example cuda_ends -- vgg16 20480 8589934592 cuda 3
//! ```
//!
//! Arguments: network, extent of the square image, bytes of the device, device (`cuda`, `cuda:N` or `cuda-sim`), runs of each.

#![expect(clippy::print_stdout, reason = "its line is its result")]

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use tiled::cuda::CudaBackend;
use tiled::cuda::driver::gpu::Gpu;
use tiled::cuda::driver::{Copy, Driver, Memory, Rows, Way};
use tiled::exec::{ConstantSource, DeviceSink, DeviceSource, SliceSink};
use tiled::prelude::*;
use tiled::tensor::DeviceTensor;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [network, extent, memory, device, runs] = arguments.as_slice() else {
        return Err("wants a network, an extent, bytes, a device and a number of runs".into());
    };
    let (extent, runs): (usize, usize) = (extent.parse()?, runs.parse()?);
    let driver = open(device)?;
    let backend = CudaBackend::new(Arc::clone(&driver));
    let network = Graph::builtin(network).ok_or("no such network")?;
    let shape = [1, network.inputs()[0].channels, extent, extent];
    let shapes = infer_nchw(&network, &[shape])?;
    let objective = Objective { mode: Mode::Eval, grad_inputs: true, ..Objective::gradients() };
    let options = PlanOptions { memory_bytes: Some(memory.parse()?), ..PlanOptions::default() };
    let plan = Planner::<f32>::new(&network, &shapes, &objective, &backend).plan(&options)?;
    let outputs: Vec<[usize; 4]> = network.outputs().iter().map(|output| shapes.shape(*output)).collect();
    let mut executor = Executor::new(plan, &backend, 2)?;
    let mut parameters = initialise::<f32>(&params(&network), 1);
    let ones = outputs.iter().map(|shape| ConstantSource::ones(*shape)).collect::<Result<Vec<_>, _>>()?;

    let image: Vec<f32> =
        (0..shape.iter().product()).map(|i: usize| (i % 251) as f32 / 125.0 - 1.0).collect();
    let mut gradient = vec![0.0_f32; image.len()];
    let lent = Lent::new(driver.as_ref(), &image)?;
    let mut seconds = [Vec::new(), Vec::new()];
    for run in 0..=runs {
        for (on_device, all) in seconds.iter_mut().enumerate() {
            let begin = Instant::now();
            let grad_outputs = ones.iter().map(|source| -> &dyn Source<f32> { source }).collect();
            if on_device == 0 {
                let (source, sink) =
                    (MemorySource::new(&image, shape)?, SliceSink::new(&mut gradient, shape)?);
                let io =
                    Io { inputs: vec![&source], grad_outputs, grad_inputs: vec![&sink], ..Io::default() };
                executor.run(&mut parameters, &io, &NoProgress)?;
            } else {
                let [image, gradient] = lent.tensors(shape)?;
                let (source, sink) = (DeviceSource::new(image), DeviceSink::new(gradient)?);
                let io =
                    Io { inputs: vec![&source], grad_outputs, grad_inputs: vec![&sink], ..Io::default() };
                executor.run(&mut parameters, &io, &NoProgress)?;
            }
            if run > 0 {
                all.push(begin.elapsed().as_secs_f64());
            }
        }
    }
    let [host, device] = seconds.map(|mut all| {
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
    });
    println!("{{\"host\": {host}, \"device\": {device}}}");
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

/// The image and its gradient in memory of the device.
struct Lent<'d> {
    driver: &'d dyn Driver,
    memory: Vec<Memory>,
}

impl<'d> Lent<'d> {
    fn new(driver: &'d dyn Driver, image: &[f32]) -> Result<Self, Box<dyn Error>> {
        let memory = vec![driver.allocate(size_of_val(image))?, driver.allocate(size_of_val(image))?];
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

    fn tensors(&self, shape: [usize; 4]) -> Result<[DeviceTensor<f32>; 2], Box<dyn Error>> {
        let [_, _, height, width] = shape.map(usize::cast_signed);
        let strides = [shape[1].cast_signed() * height * width, height * width, width, 1];
        let tensor = |memory: &Memory| {
            // SAFETY: memory of the device that stays allocated for as long as this, of which no stream of a caller is asked anything
            unsafe { DeviceTensor::new(self.driver.device(), memory.address, shape, strides, 0) }
        };
        Ok([tensor(&self.memory[0])?, tensor(&self.memory[1])?])
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        for memory in self.memory.drain(..) {
            self.driver.free(memory);
        }
    }
}
