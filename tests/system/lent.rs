//! Tensors of a caller in the memory of a simulated GPU: a run reads and writes them there, and leaves them to the caller where it fails.
#![cfg(unix)]

use std::sync::Arc;

use tiled::cuda::CudaBackend;
use tiled::cuda::driver::simulated::{Order, Simulated};
use tiled::cuda::driver::{Copy, Driver, Facts, Memory, Pinned, Rows, Stream, Way};
use tiled::exec::{DeviceSink, DeviceSource};
use tiled::prelude::*;
use tiled::tensor::DeviceTensor;

const IMAGE: [usize; 4] = [1, 3, 16, 24];
const OUTPUT: [usize; 4] = [1, 32, 4, 6];

/// Where the caller's tensors begin, in elements, and how many elements there are: the image, the output, the gradient of the image.
const PLACES: [usize; 3] = [0, 1152, 1152 + 768];
const ELEMENTS: usize = 1152 + 768 + 1152;
const BYTES: usize = ELEMENTS * size_of::<f32>();

/// A simulated GPU with memory of a caller, who has asked a stream to fill it.
struct Bed {
    device: Arc<Simulated>,
    backend: CudaBackend,
    memory: Memory,
    pinned: Pinned,
    stream: Stream,
}

impl Bed {
    fn new(device: Simulated) -> Self {
        let device = Arc::new(device);
        let backend = CudaBackend::new(Arc::<Simulated>::clone(&device));
        let memory = device.allocate(BYTES).expect("there is room");
        let pinned = device.allocate_pinned(BYTES).expect("there is room");
        let stream = device.create_stream().expect("a stream");
        let mut bed = Self { device, backend, memory, pinned, stream };
        bed.elements().fill(-7.0);
        for (at, element) in bed.elements()[..PLACES[1]].iter_mut().enumerate() {
            *element = pixel(at);
        }
        bed.copy(Way::In);
        bed
    }

    /// What the host has in pinned memory; nothing is under way.
    fn elements(&mut self) -> &mut [f32] {
        // SAFETY: memory of so many bytes, aligned and initialised, that nothing uses meanwhile
        unsafe { std::slice::from_raw_parts_mut(self.pinned.address as *mut f32, ELEMENTS) }
    }

    /// Asks the caller's stream for a copy of all memory between the host and the device.
    fn copy(&self, way: Way) {
        let rows = |address| Rows { address, row_bytes: BYTES, plane_bytes: BYTES };
        let (host, device) = (rows(self.pinned.address), rows(self.memory.address));
        let (from, to) = if way == Way::In { (host, device) } else { (device, host) };
        let copy = Copy { way, from, to, bytes: BYTES, rows: 1, planes: 1 };
        // SAFETY: both are so long, and nothing touches them until it has run
        unsafe { self.device.copy(self.stream, &copy) }.expect("it is asked for");
    }

    /// All of the caller's memory, once everything has run.
    fn received(&mut self) -> Vec<f32> {
        self.device.synchronise(self.stream).expect("nothing fails twice");
        self.copy(Way::Out);
        self.device.synchronise(self.stream).expect("nothing fails twice");
        self.elements().to_vec()
    }

    /// The caller's tensor of this number, channels last.
    fn tensor(&self, number: usize, shape: [usize; 4]) -> DeviceTensor<f32> {
        let [_, channels, height, width] = shape.map(usize::cast_signed);
        let strides = [channels * height * width, 1, width * channels, channels];
        let address = self.memory.address + (PLACES[number] * size_of::<f32>()) as u64;
        let stream = Simulated::stream_of_callers(self.stream);
        // SAFETY: memory of the device, which is freed at the end, and a stream of it
        unsafe { DeviceTensor::new(self.device.device(), address, shape, strides, stream) }.expect("it fits")
    }

    /// The output and the gradient of the image, in many tiles.
    fn run(&self, graph: &Graph, plan: Plan) -> Result<(), ExecError> {
        let source = DeviceSource::new(self.tensor(0, IMAGE));
        let output = DeviceSink::new(self.tensor(1, OUTPUT))?;
        let gradient = DeviceSink::new(self.tensor(2, IMAGE))?;
        let io = Io {
            inputs: vec![&source],
            outputs: vec![&output],
            grad_inputs: vec![&gradient],
            ..Io::default()
        };
        let mut parameters = initialise::<f32>(&params(graph), 5);
        let run = Executor::new(plan, &self.backend, 2)
            .and_then(|mut executor| executor.run(&mut parameters, &io, &NoProgress));
        if let Err(error) = &run {
            let [output, gradient] = [&output, &gradient].map(|sink| sink.finish().is_err());
            assert!(output && gradient, "sinks are aborted, or nothing was written: {error}");
        }
        run.map(drop)
    }

    /// Gives the caller's own back: then nothing is left.
    fn end(self) {
        let Self { device, memory, pinned, stream, .. } = self;
        device.free(memory);
        device.free_pinned(pinned);
        device.destroy_stream(stream);
        assert_eq!(device.left(), [0; 4], "memory, pinned memory, streams and events are given back");
    }
}

fn pixel(at: usize) -> f32 {
    let at = u8::try_from(at * 7 % 251).expect("below 251");
    f32::from(at) / 125.0 - 1.0
}

fn device() -> Option<Simulated> {
    Simulated::new(Facts::h200(), Order::Shuffled(9))
        .inspect_err(|reason| eprintln!("skipped: {reason}"))
        .ok()
}

/// A network and its plan in tiles.
fn planned(backend: &CudaBackend) -> (Graph, Plan) {
    let graph = Graph::builtin("light").expect("it is built in");
    let shapes = infer(&graph, 1, &[[IMAGE[2], IMAGE[3]]]).expect("it fits");
    let objective = Objective { outputs: true, grad_inputs: true, ..Objective::training(Loss::Sum) };
    let options = PlanOptions { hold: Hold::Slide, tiling: Tiling::Tile([1, 3]), ..PlanOptions::default() };
    let plan = Planner::<f32>::new(&graph, &shapes, &objective, backend).plan(&options).expect("a plan");
    assert!(plan.tiles() > 4, "more than one tile");
    (graph, plan)
}

/// Elements of a channels-last tensor in the order of NCHW.
fn nchw(values: &[f32], [_, channels, height, width]: [usize; 4]) -> Vec<f32> {
    let pixels = height * width;
    (0..channels).flat_map(|c| (0..pixels).map(move |pixel| values[pixel * channels + c])).collect()
}

#[test]
fn tensors_on_the_device_have_the_bits_of_those_of_the_host() {
    let Some(device) = device() else { return };
    let mut bed = Bed::new(device);
    let (graph, plan) = planned(&bed.backend);
    bed.run(&graph, plan.clone()).expect("it works");
    let got = bed.received();

    let image = nchw(&(0..PLACES[1]).map(pixel).collect::<Vec<f32>>(), IMAGE);
    let source = MemorySource::new(&image, IMAGE).expect("as many elements");
    let output = MemorySink::<f32>::new(OUTPUT).expect("small");
    let gradient = MemorySink::<f32>::new(IMAGE).expect("small");
    let io =
        Io { inputs: vec![&source], outputs: vec![&output], grad_inputs: vec![&gradient], ..Io::default() };
    let mut parameters = initialise::<f32>(&params(&graph), 5);
    let mut executor = Executor::new(plan, &bed.backend, 2).expect("memory for a small case");
    executor.run(&mut parameters, &io, &NoProgress).expect("it works");
    drop(executor);
    assert!(nchw(&got[PLACES[1]..PLACES[2]], OUTPUT) == output.into_tensor().data(), "outputs");
    assert!(nchw(&got[PLACES[2]..], IMAGE) == gradient.into_tensor().data(), "gradients");
    assert!(got[..PLACES[1]].iter().enumerate().all(|(at, value)| *value == pixel(at)), "the image");
    bed.end();
}

#[test]
fn each_call_of_the_driver_that_fails_leaves_the_caller_its_tensors() {
    let Some(device) = device() else { return };
    let bed = Bed::new(device);
    let (graph, plan) = planned(&bed.backend);
    let begin = bed.device.calls();
    bed.run(&graph, plan.clone()).expect("it works");
    let end = bed.device.calls();
    bed.end();
    assert!(end - begin > 200, "only {} calls", end - begin);
    for call in begin..end {
        let mut bed = Bed::new(self::device().expect("a compiler was found").failing(call));
        let Err(error) = bed.run(&graph, plan.clone()) else { panic!("call {call} of {end} did not fail") };
        assert!(error.to_string().contains(&format!("call {call} was to fail")), "{error}");
        let got = bed.received();
        assert!(got[..PLACES[1]].iter().enumerate().all(|(at, value)| *value == pixel(at)), "after {error}");
        bed.end();
    }
}
