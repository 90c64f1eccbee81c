//! The simulated device itself: what it finds, and what it lets fail.
#![cfg(all(unix, feature = "simulated"))]

use tiled_cuda::driver::simulated::{Order, Simulated};
use tiled_cuda::driver::{Copy, Driver, DriverError, Facts, Launch, Memory, Pinned, Rows, Stream, Way};
use tiled_cuda::units::Unit;

/// Kernels that do what they should not, and some that do.
static FAULTS: Unit = Unit {
    name: "faults",
    source: r#"
#include "device.cuh"
#include "ptx.cuh"
struct Args { float* to; const float* from; int count, unused; };
struct Words { float at[64]; };
struct Aligned { Vec<float, 4> at[16]; };
KERNEL(reversed, Args, 64) {
    SHARED(Words, shared);
    shared.at[threadIdx.x] = args.from[threadIdx.x];
    __syncthreads();
    args.to[threadIdx.x] = shared.at[63 - threadIdx.x];
}
KERNEL(reversed_at_once, Args, 64) {
    SHARED(Words, shared);
    shared.at[threadIdx.x] = args.from[threadIdx.x];
    args.to[threadIdx.x] = shared.at[63 - threadIdx.x];
}
KERNEL(parted, Args, 64) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}
KERNEL(gone, Args, 64) {
    if (threadIdx.x == 5) return;
    __syncthreads();
}
KERNEL(summed, Args, 64) {
    float value = args.from[threadIdx.x];
    for (int by = 16; by > 0; by /= 2) value += __shfl_xor_sync(0xffffffffu, value, by);
    args.to[threadIdx.x] = value;
}
KERNEL(beyond, Args, 64) { args.to[args.count + threadIdx.x] = 1.0f; }
KERNEL(copied, Args, 64) {
    SHARED(Aligned, shared);
    if (threadIdx.x < 16) copy_async_16(&shared.at[threadIdx.x], args.from + 4 * threadIdx.x, 16);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    args.to[threadIdx.x] = shared.at[threadIdx.x / 4].at[threadIdx.x % 4];
}
KERNEL(copied_at_once, Args, 64) {
    SHARED(Aligned, shared);
    if (threadIdx.x < 16) copy_async_16(&shared.at[threadIdx.x], args.from + 4 * threadIdx.x, 16);
    copy_async_commit();
    __syncthreads();
    args.to[threadIdx.x] = shared.at[threadIdx.x / 4].at[threadIdx.x % 4];
    copy_async_wait<0>();
}
KERNEL(tripled, Args, 64) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    args.to[at] = 3.0f * args.from[at];
}
"#,
    kernels: &[
        "reversed",
        "reversed_at_once",
        "parted",
        "gone",
        "summed",
        "beyond",
        "copied",
        "copied_at_once",
        "tripled",
    ],
};

const COUNT: usize = 64;
const BYTES: usize = COUNT * 4;
const ORDERS: [Order; 3] = [Order::Forward, Order::Backward, Order::Shuffled(7)];

/// A device with two arrays and a chunk of pinned memory; none where there is no compiler.
struct Bench {
    device: Simulated,
    stream: Stream,
    from: Memory,
    to: Memory,
    pinned: Pinned,
}

impl Bench {
    fn new(order: Order) -> Option<Self> {
        match Simulated::new(Facts::h200(), order) {
            Ok(device) => Some(Self::of(device).expect("a device that works")),
            Err(reason) => {
                eprintln!("skipped: {reason}");
                None
            }
        }
    }

    fn of(device: Simulated) -> Result<Self, DriverError> {
        Ok(Self {
            stream: device.create_stream()?,
            from: device.allocate(BYTES)?,
            to: device.allocate(BYTES)?,
            pinned: device.allocate_pinned(BYTES)?,
            device,
        })
    }

    fn pinned(&mut self) -> &mut [f32] {
        // SAFETY: so many bytes of pinned memory, which no task that is under way uses in these tests
        unsafe { std::slice::from_raw_parts_mut(self.pinned.address as *mut f32, COUNT) }
    }

    fn copy(&self, stream: Stream, way: Way, from: u64, to: u64) -> Result<(), DriverError> {
        let rows = |address| Rows { address, row_bytes: BYTES, plane_bytes: BYTES };
        let copy = Copy { way, from: rows(from), to: rows(to), bytes: BYTES, rows: 1, planes: 1 };
        // SAFETY: both lie in the bench's memory, which outlives the stream
        unsafe { self.device.copy(stream, &copy) }
    }

    fn launch(&self, stream: Stream, kernel: &str, count: i32) -> Result<(), DriverError> {
        let function = self.device.function(&FAULTS, kernel)?;
        let mut args = Vec::new();
        args.extend(self.to.address.to_ne_bytes());
        args.extend(self.from.address.to_ne_bytes());
        args.extend(count.to_ne_bytes());
        args.extend([0; 4]);
        // SAFETY: these are the fields of the struct; `beyond` alone writes elsewhere, between guards
        unsafe { self.device.launch(stream, &Launch { function, grid: [1; 3], block: [64, 1, 1] }, &args) }
    }

    /// What a kernel makes of 0, 1, 2, …
    fn run(&mut self, kernel: &str) -> Result<Vec<f32>, DriverError> {
        self.pinned().iter_mut().zip(0_u8..).for_each(|(value, i)| *value = i.into());
        self.copy(self.stream, Way::In, self.pinned.address, self.from.address)?;
        self.launch(self.stream, kernel, 64)?;
        self.copy(self.stream, Way::Out, self.to.address, self.pinned.address)?;
        self.device.synchronise(self.stream)?;
        Ok(self.pinned().to_vec())
    }
}

fn message(error: &DriverError) -> String {
    error.to_string()
}

#[test]
fn kernels_with_barriers_shuffles_and_copies_give_the_same_in_every_order() {
    for order in ORDERS {
        let Some(mut bench) = Bench::new(order) else { return };
        let reversed: Vec<f32> = (0..64_u8).rev().map(f32::from).collect();
        assert_eq!(bench.run("reversed").expect("it runs"), reversed, "{order:?}");
        let sums = bench.run("summed").expect("it runs");
        assert_eq!((sums[0], sums[31], sums[32], sums[63]), (496.0, 496.0, 1520.0, 1520.0), "{order:?}");
        let copied: Vec<f32> = (0..64_u8).map(f32::from).collect();
        assert_eq!(bench.run("copied").expect("it runs"), copied, "{order:?}");
    }
}

#[test]
fn a_barrier_that_is_left_out_shows_as_nothing_written() {
    for order in ORDERS {
        let Some(mut bench) = Bench::new(order) else { return };
        let values = bench.run("reversed_at_once").expect("it runs");
        assert!(values.iter().any(|value| value.is_nan()), "{order:?}: {values:?}");
    }
}

#[test]
fn a_copy_that_is_not_waited_for_shows_as_nothing_written() {
    let Some(mut bench) = Bench::new(Order::Forward) else { return };
    let values = bench.run("copied_at_once").expect("it runs");
    // whose copies have come by then depends on the order
    assert!(values.iter().any(|value| value.is_nan()), "{values:?}");
}

#[test]
fn threads_that_wait_at_different_barriers_end_the_launch() {
    for kernel in ["parted", "gone"] {
        let Some(mut bench) = Bench::new(Order::Forward) else { return };
        let error = bench.run(kernel).expect_err("it must fail");
        assert!(message(&error).contains("wait at different places"), "{kernel}: {error}");
        let again = bench.device.synchronise(bench.stream).expect_err("the device stays as it is");
        assert_eq!(again, error);
    }
}

#[test]
fn a_write_beside_memory_is_found_when_it_is_given_back() {
    let Some(mut bench) = Bench::new(Order::Forward) else { return };
    bench.run("beyond").expect("nobody has looked yet");
    let to = Memory { ..bench.to };
    let freed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.device.free(to)));
    let panic = freed.expect_err("it must be found");
    let text = panic.downcast_ref::<String>().expect("a message");
    assert!(text.contains("written beside memory of 256 bytes"), "{text}");
}

#[test]
fn a_copy_outside_memory_is_an_error() {
    let Some(bench) = Bench::new(Order::Forward) else { return };
    bench.copy(bench.stream, Way::Within, bench.from.address + 4, bench.to.address).expect("asked for");
    let error = bench.device.synchronise(bench.stream).expect_err("it must fail");
    assert!(message(&error).contains("lie in no memory of the device"), "{error}");
}

#[test]
fn streams_run_in_any_order_that_events_allow() {
    let mut without_events = Vec::new();
    for order in ORDERS {
        for waits in [false, true] {
            let Some(mut bench) = Bench::new(order) else { return };
            bench.pinned().fill(1.0);
            let other = bench.device.create_stream().expect("a stream");
            let event = bench.device.create_event().expect("an event");
            // one stream brings the numbers, the other one works on them
            bench.copy(other, Way::In, bench.pinned.address, bench.from.address).expect("asked for");
            bench.device.record(event, other).expect("asked for");
            if waits {
                bench.device.wait(bench.stream, event).expect("asked for");
            }
            bench.launch(bench.stream, "tripled", 64).expect("asked for");
            bench.device.synchronise(bench.stream).expect("it runs");
            bench.copy(bench.stream, Way::Out, bench.to.address, bench.pinned.address).expect("asked for");
            bench.device.synchronise(bench.stream).expect("it runs");
            let value = bench.pinned()[9];
            if waits {
                assert_eq!(value, 3.0, "{order:?}");
            } else {
                without_events.push(value.is_nan());
            }
        }
    }
    assert!(without_events.contains(&true), "an event that is left out never shows");
}

#[test]
fn memory_that_was_never_written_holds_no_number() {
    let Some(mut bench) = Bench::new(Order::Forward) else { return };
    bench.copy(bench.stream, Way::Out, bench.to.address, bench.pinned.address).expect("asked for");
    bench.device.synchronise(bench.stream).expect("it runs");
    assert!(bench.pinned().iter().all(|value| value.is_nan()));
}

#[test]
fn any_call_can_be_made_to_fail() {
    let Some(mut bench) = Bench::new(Order::Forward) else { return };
    bench.run("reversed").expect("it runs");
    let calls = bench.device.calls();
    assert_eq!(calls, 9, "a stream, three allocations, a load, two copies, a launch and a wait");
    for call in 0..calls {
        let device = Simulated::new(Facts::h200(), Order::Forward).expect("a compiler").failing(call);
        let error = match Bench::of(device) {
            Ok(mut bench) => bench.run("reversed").expect_err("it must fail"),
            Err(error) => error,
        };
        assert!(message(&error).contains(&format!("call {call} was to fail")), "{error}");
    }
}

#[test]
fn more_memory_than_the_device_has_is_refused() {
    let facts = Facts { memory_bytes: 1000, ..Facts::h200() };
    let Ok(device) = Simulated::new(facts, Order::Forward) else { return };
    let held = device.allocate(600).expect("there is room");
    assert_eq!(device.allocate(600), Err(DriverError::OutOfMemory { bytes: 600 }));
    device.free(held);
    assert_eq!((device.allocated(), device.peak(), device.left()), (0, 600, [0; 4]));
}
