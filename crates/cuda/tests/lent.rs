//! Tensors of a caller on the device: copied in and out of windows with any strides, and ordered by the caller's stream.
#![cfg(all(unix, feature = "simulated"))]

use std::sync::Arc;

use tiled_cuda::CudaBackend;
use tiled_cuda::driver::simulated::{Order, Simulated};
use tiled_cuda::driver::{Copy, Driver, Facts, Memory, Pinned, Rows, Stream, Way};
use tiled_geometry::{Interval, Region};
use tiled_kernel::{Backend, Buffer, Context, DeviceError, Needs, Place, SweepNeeds};
use tiled_tensor::{DeviceTensor, Element, Layout, MemoryDevice, View};

const ORDERS: [Order; 3] = [Order::Forward, Order::Backward, Order::Shuffled(5)];

/// A device with memory of a caller on it.
struct Bed {
    device: Arc<Simulated>,
    backend: CudaBackend,
    memory: Memory,
    pinned: Pinned,
    stream: Stream,
}

/// The bytes that a caller has.
const BYTES: usize = 1 << 16;

impl Bed {
    fn new(order: Order) -> Option<Self> {
        let device = Simulated::new(Facts::h200(), order);
        Some(Self::of(device.inspect_err(|reason| eprintln!("skipped: {reason}")).ok()?))
    }

    fn of(device: Simulated) -> Self {
        let device = Arc::new(device);
        let backend = CudaBackend::new(Arc::<Simulated>::clone(&device));
        let memory = device.allocate(BYTES).expect("there is room");
        let pinned = device.allocate_pinned(BYTES).expect("there is room");
        let stream = device.create_stream().expect("a stream");
        Self { device, backend, memory, pinned, stream }
    }

    /// What the host has in pinned memory; nothing is under way.
    fn elements<T: Element>(&mut self) -> &mut [T] {
        // SAFETY: memory of so many bytes, aligned and initialised, that nothing uses meanwhile
        unsafe { std::slice::from_raw_parts_mut(self.pinned.address as *mut T, BYTES / size_of::<T>()) }
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

    fn tensor<T: Element>(&self, first: usize, shape: [usize; 4], strides: [isize; 4]) -> DeviceTensor<T> {
        let address = self.memory.address + (first * size_of::<T>()) as u64;
        let stream = Simulated::stream_of_callers(self.stream);
        // SAFETY: memory of the device, which is freed at the end, and a stream of it
        unsafe { DeviceTensor::new(self.device.device(), address, shape, strides, stream) }.expect("it fits")
    }

    fn context<T: Element>(&self) -> Box<dyn Context<T> + '_> {
        let needs = Needs {
            nodes: &[],
            reductions: &[],
            stores: &[],
            lanes: 1,
            queues: 1,
            window_elements: ELEMENTS,
            threads: 1,
            workspace_bytes: 0,
        };
        self.backend.open(&needs).expect("memory for a small case")
    }

    fn end(self) {
        let Self { device, memory, pinned, stream, .. } = self;
        device.free(memory);
        device.free_pinned(pinned);
        device.destroy_stream(stream);
        assert_eq!(device.left(), [0; 4], "memory, pinned memory, streams and events are given back");
    }
}

/// The elements of all windows.
const ELEMENTS: usize = 4096;
const SWEEP_SLOTS: [usize; 1] = [ELEMENTS];

/// A tensor: its first element, its shape and its strides.
type Case = (usize, [usize; 4], [isize; 4]);

/// As it lies in NCHW, with channels last, upside down, with gaps, and of one channel.
const CASES: [Case; 5] = [
    (3, [2, 11, 7, 5], [385, 35, 5, 1]),
    (0, [2, 11, 7, 5], [385, 1, 55, 11]),
    (30, [1, 3, 7, 5], [105, 35, -5, 1]),
    (7, [1, 9, 7, 5], [1000, 101, 13, 2]),
    (0, [3, 1, 7, 5], [35, 35, 5, 1]),
];

fn value<T: Element>(place: usize) -> T {
    T::from_f64(f64::from(u32::try_from(place % 1021).expect("small")) / 8.0 - 31.0)
}

fn place(first: usize, strides: [isize; 4], [n, c, y, x]: [usize; 4]) -> usize {
    let at = [n, c, y, x].iter().zip(strides).map(|(index, stride)| index.cast_signed() * stride).sum();
    first.checked_add_signed(at).expect("it lies in memory")
}

/// The window of a case: rows in a ring of five, columns 1 to 5; and the rows that pass through it.
fn window(shape: [usize; 4]) -> (Buffer, Region<2>) {
    let block = if shape[1] <= 4 { 1 } else { 8 };
    let (rows, cols) = (Interval::new(2, 6), Interval::new(1, 5));
    let layout =
        Layout::new(shape[0], shape[1], block, Region::from_rows_cols(rows, cols), 5).expect("small");
    let region = Region::from_rows_cols(rows, Interval::new(2, 5));
    (Buffer { place: Place::Slot(0), layout }, region)
}

fn each_element(shape: [usize; 4], region: Region<2>, mut visit: impl FnMut([usize; 4])) {
    let index = |at: i64| usize::try_from(at).expect("inside");
    for n in 0..shape[0] {
        for c in 0..shape[1] {
            for y in region.rows().begin()..region.rows().end() {
                for x in region.cols().begin()..region.cols().end() {
                    visit([n, c, index(y), index(x)]);
                }
            }
        }
    }
}

fn get<T: Element>(view: &View<'_, T>, [n, c, y, x]: [usize; 4]) -> T {
    let at = |index: usize| i64::try_from(index).expect("small");
    view.get(n, c, at(y), at(x))
}

/// What was written on the caller's stream, and not waited for, is in the window.
fn imports<T: Element>(order: Order, (first, shape, strides): Case) -> bool {
    let Some(mut bed) = Bed::new(order) else { return false };
    for (at, element) in bed.elements::<T>().iter_mut().enumerate() {
        *element = value(at);
    }
    let tensor = bed.tensor::<T>(first, shape, strides);
    let mut context = bed.context::<T>();
    bed.copy(Way::In);
    context.lend(&[tensor]).expect("it lies on the device");
    let mut queues = context
        .queues(&SweepNeeds { queues: 1, slots: &SWEEP_SLOTS, vectors: &[], adopted: &[] })
        .expect("memory for a small case");
    let (window, region) = window(shape);
    queues[0].import(&tensor, &window, region).expect("it was lent");
    let ticket = queues[0].fetch(&window, region).expect("it is asked for");
    let view = queues[0].take(ticket).expect("it has come");
    each_element(shape, region, |at| {
        let expected: T = value(place(first, strides, at));
        assert_eq!(get(&view, at).to_f64(), expected.to_f64(), "{at:?} in {order:?}");
    });
    drop(queues);
    drop(context);
    bed.end();
    true
}

/// What the caller's stream still reads stays until it has, and what is exported has come when the queue has waited.
fn exports<T: Element>(order: Order, (first, shape, strides): Case) -> bool {
    let Some(mut bed) = Bed::new(order) else { return false };
    for (at, element) in bed.elements::<T>().iter_mut().enumerate() {
        *element = value(at);
    }
    let tensor = bed.tensor::<T>(first, shape, strides);
    bed.copy(Way::In);
    bed.device.synchronise(bed.stream).expect("nothing fails");
    bed.elements::<T>().fill(T::ZERO);
    let mut context = bed.context::<T>();
    bed.copy(Way::Out);
    context.lend(&[tensor]).expect("it lies on the device");
    let mut queues = context
        .queues(&SweepNeeds { queues: 1, slots: &SWEEP_SLOTS, vectors: &[], adopted: &[] })
        .expect("memory for a small case");
    let (window, region) = window(shape);
    let mut staged = queues[0].stage(&window, region).expect("there is room");
    each_element(shape, region, |[n, c, y, x]| {
        let at = |index: usize| i64::try_from(index).expect("small");
        staged.set(n, c, at(y), at(x), T::from_f64(-1000.0));
    });
    queues[0].push(&window, region).expect("it is sent");
    queues[0].export(&window, &tensor, region).expect("it was lent");
    queues[0].wait().expect("nothing fails");
    drop(queues);
    drop(context);
    bed.device.synchronise(bed.stream).expect("nothing fails");
    for (at, element) in bed.elements::<T>().iter().enumerate() {
        assert_eq!(element.to_f64(), value::<T>(at).to_f64(), "the caller's copy, {at} in {order:?}");
    }
    bed.copy(Way::Out);
    bed.device.synchronise(bed.stream).expect("nothing fails");
    let mut expected: Vec<T> = (0..BYTES / size_of::<T>()).map(value).collect();
    each_element(shape, region, |at| expected[place(first, strides, at)] = T::from_f64(-1000.0));
    for (at, (element, expected)) in bed.elements::<T>().iter().zip(expected).enumerate() {
        assert_eq!(element.to_f64(), expected.to_f64(), "what was exported, {at} in {order:?}");
    }
    bed.end();
    true
}

#[test]
fn a_tensor_with_any_strides_comes_into_windows_after_what_its_stream_was_asked() {
    for order in ORDERS {
        for case in CASES {
            if !imports::<f32>(order, case) {
                return;
            }
            imports::<f64>(order, case);
        }
    }
}

#[test]
fn a_tensor_with_any_strides_is_written_after_what_its_stream_was_asked() {
    for order in ORDERS {
        for case in CASES {
            if !exports::<f32>(order, case) {
                return;
            }
            exports::<f64>(order, case);
        }
    }
}

#[test]
fn tensors_elsewhere_unknown_streams_and_tensors_that_were_not_lent_are_errors() {
    let Some(bed) = Bed::new(Order::Forward) else { return };
    let (first, shape, strides) = CASES[0];
    let tensor = bed.tensor::<f32>(first, shape, strides);
    let mut context = bed.context::<f32>();
    let gpu = MemoryDevice { kind: MemoryDevice::CUDA, index: 3 };
    // SAFETY: nobody uses it
    let elsewhere = unsafe { DeviceTensor::new(gpu, tensor.address(), shape, strides, 0) }.expect("it fits");
    let error = context.lend(&[tensor, elsewhere]).expect_err("it lies elsewhere");
    assert_eq!(
        error.to_string(),
        "tensor lies on cuda:3, the work is on cuda (NVIDIA H200, simulated)",
        "{error:?}"
    );
    // SAFETY: nobody uses it, and the simulated device knows its streams
    let strange =
        unsafe { DeviceTensor::new(bed.device.device(), tensor.address(), shape, strides, 1 << 40) };
    let error = context.lend(&[strange.expect("it fits")]).expect_err("there is no such stream");
    assert!(error.to_string().contains("is no stream of this device"), "{error}");
    let (window, region) = window(shape);
    let mut queues = context
        .queues(&SweepNeeds { queues: 1, slots: &SWEEP_SLOTS, vectors: &[], adopted: &[] })
        .expect("memory for a small case");
    let errors = [queues[0].import(&tensor, &window, region), queues[0].export(&window, &tensor, region)];
    for error in errors {
        assert!(matches!(error, Err(DeviceError::Failed { .. })), "{error:?}");
    }
    drop(queues);
    drop(context);
    bed.end();
}

/// Copies a region of one tensor of the caller to another, through a window and past the host.
fn pass(bed: &Bed, [from, to]: [&DeviceTensor<f32>; 2]) -> Result<(), DeviceError> {
    let needs = Needs {
        nodes: &[],
        reductions: &[],
        stores: &[],
        lanes: 1,
        queues: 1,
        window_elements: ELEMENTS,
        threads: 1,
        workspace_bytes: 0,
    };
    let backend: &dyn Backend<f32> = &bed.backend;
    let mut context = backend.open(&needs)?;
    context.lend(&[*from, *to])?;
    let mut queues =
        context.queues(&SweepNeeds { queues: 1, slots: &SWEEP_SLOTS, vectors: &[], adopted: &[] })?;
    let (window, region) = window(from.shape());
    queues[0].import(from, &window, region)?;
    let ticket = queues[0].fetch(&window, region)?;
    queues[0].take(ticket)?;
    queues[0].export(&window, to, region)?;
    queues[0].wait()
}

/// The failure of a call, if it is to fail; and the calls before the first that may, and after the last.
fn passes(order: Order, failing: Option<u64>) -> Option<(Result<(), DeviceError>, [u64; 2])> {
    let device = Simulated::new(Facts::h200(), order);
    let device = device.inspect_err(|reason| eprintln!("skipped: {reason}")).ok()?;
    let mut bed = Bed::of(failing.into_iter().fold(device, Simulated::failing));
    for (at, element) in bed.elements::<f32>().iter_mut().enumerate() {
        *element = value(at);
    }
    bed.copy(Way::In);
    let (first, shape, strides) = CASES[0];
    let second = BYTES / size_of::<f32>() / 2;
    let [from, to] = [first, second].map(|first| bed.tensor::<f32>(first, shape, strides));
    let before = bed.device.calls();
    let allocated = bed.device.allocated();
    let passed = pass(&bed, [&from, &to]);
    let after = bed.device.calls();
    assert_eq!(bed.device.left(), [1, 1, 1, 0], "what is left is the caller's, after {passed:?}");
    assert_eq!(bed.device.allocated(), allocated, "after {passed:?}");
    // the caller's stream and memory work on: all is as it was, but what may have been exported
    bed.device.synchronise(bed.stream).expect("the caller's stream works on");
    bed.elements::<f32>().fill(0.0);
    bed.copy(Way::Out);
    bed.device.synchronise(bed.stream).expect("the caller's stream works on");
    let held = bed.elements::<f32>();
    each_element(shape, window(shape).1, |at| {
        let [source, target] = [first, second].map(|first| place(first, strides, at));
        let [old, new] = [value::<f32>(target), value::<f32>(source)];
        let got = held[target];
        assert!(got == new || passed.is_err() && got == old, "{got} at {at:?} after {passed:?}");
        held[target] = old;
    });
    for (at, element) in held.iter().enumerate() {
        assert_eq!(element.to_bits(), value::<f32>(at).to_bits(), "{at} after {passed:?}");
    }
    bed.end();
    Some((passed, [before, after]))
}

#[test]
fn every_call_that_fails_with_lent_tensors_is_an_error_and_leaves_the_caller_its_memory() {
    let Some((passed, [before, after])) = passes(Order::Forward, None) else { return };
    passed.expect("nothing was to fail");
    assert!(after - before > 20, "only {} calls", after - before);
    for call in before..after {
        for order in ORDERS {
            let (passed, _) = passes(order, Some(call)).expect("a compiler was found");
            let error = passed.expect_err("it was to fail").to_string();
            assert!(error.contains(&format!("call {call} was to fail")), "{error}");
        }
    }
}
