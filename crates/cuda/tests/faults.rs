//! The suite finds what it should: faults that are planted in the kernels and between the streams, one at a time.
#![cfg(all(unix, feature = "simulated"))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tiled_cuda::driver::simulated::{Order, Simulated};
use tiled_cuda::driver::{Copy, Driver, DriverError, Event, Facts, Function, Launch, Memory, Pinned, Stream};
use tiled_cuda::units::{UNITS, Unit};
use tiled_cuda::{CudaBackend, Precision};
use tiled_kernel::Backend;
use tiled_tensor::MemoryDevice;
use tiled_testkit::conformance as suite;

/// As the suite itself runs.
const SEED: u64 = 20_250_131;
const ORDERS: [Order; 3] = [Order::Forward, Order::Backward, Order::Shuffled(SEED)];

type Check = fn(&dyn Backend<f32>, u64, usize);

/// What is wrong with a device.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Nothing.
    None,
    /// A file of kernels, and what is written in place of what: the first of its kind.
    Kernels(&'static str, &'static [[&'static str; 2]]),
    /// Streams do not wait for events.
    NoWaits,
    /// Events are not recorded, so they count as having come.
    NoRecords,
    /// The host does not wait for events: it writes and reads memory that is in use.
    NoHostWaits,
}

/// Each fault with a check that has to find it, and the cases that the suite gives that check.
const FAULTS: [(&str, Fault, Check, usize); 17] = [
    (
        "a barrier is left out",
        Fault::Kernels(
            "conv",
            &[["none reads the stage of this one any more\n        __syncthreads();", "none reads it"]],
        ),
        suite::check_conv2d,
        6,
    ),
    (
        "an asynchronous copy is waited for too late",
        Fault::Kernels("conv", &[["copy_async_wait<0>();", "copy_async_wait<1>();"]]),
        suite::check_conv2d,
        6,
    ),
    (
        "padding lanes are not masked",
        Fault::Kernels(
            "conv",
            &[["const int left = args.reduced - block * STEP - half * LANES;", "const int left = LANES;"]],
        ),
        suite::check_conv2d,
        6,
    ),
    (
        "a ring does not begin again",
        Fault::Kernels("conv", &[["if (slot >= args.in.ring) slot -= args.in.ring;", ""]]),
        suite::check_conv2d,
        6,
    ),
    (
        "a row past the image counts",
        Fault::Kernels(
            "conv",
            &[
                ["y < rows.high ? col", "y <= rows.high ? col"],
                [
                    "args.part.rows && y >= rows.low && y < rows.high",
                    "args.part.rows && y >= rows.low && y <= rows.high",
                ],
            ],
        ),
        suite::check_conv2d,
        6,
    ),
    (
        "the bias of another channel is taken",
        Fault::Kernels("conv", &[["(args.bias)[group * args.outputs + output]", "(args.bias)[output]"]]),
        suite::check_conv2d,
        6,
    ),
    (
        "tiles of Winograd's filtering begin with the region",
        Fault::Kernels(
            "winograd",
            &[["y0 = (tiles.row0 + place.row) * TILE", "y0 = part.row0 + place.row * TILE"]],
        ),
        suite::check_conv2d_winograd,
        6,
    ),
    (
        "transformed weights are not waited for",
        Fault::Kernels(
            "winograd",
            &[[
                "            if (step + 1 < steps) load(step + 1);\n        }\n        copy_async_wait<0>();",
                "            if (step + 1 < steps) load(step + 1);\n        }",
            ]],
        ),
        suite::check_conv2d_winograd,
        6,
    ),
    (
        "transformed factors are written while others read them",
        Fault::Kernels(
            "winograd",
            &[["        // none reads the factors any more\n        __syncthreads();", ""]],
        ),
        suite::check_conv2d_winograd,
        6,
    ),
    (
        "a lane that is no channel is transformed",
        Fault::Kernels("winograd", &[["channels_left > 1 ? values.at[1] : T(0)", "values.at[1]"]]),
        suite::check_conv2d_winograd,
        6,
    ),
    (
        "parts are added as they come",
        Fault::Kernels(
            "weight",
            &[
                [
                    "if (is_real && o < args.outputs) scratch[(static_cast<i64>(o) * taps + tap) * args.inputs + c] = sum;",
                    "if (is_real && o < args.outputs) {\n\
                     T* to = static_cast<T*>(args.scratch) + (static_cast<i64>(group * args.outputs + o) * taps + tap) * args.inputs + c;\n\
                     if (blockIdx.z == 0) *to = sum; else *to += sum; }",
                ],
                [
                    "for (int part = 1; part < args.parts; part += AHEAD)",
                    "for (int part = 1; part < 1; part += AHEAD)",
                ],
            ],
        ),
        suite::check_conv2d_backward_weight,
        6,
    ),
    (
        "a pixel belongs to two parts",
        Fault::Kernels(
            "weight",
            &[[
                "end = pixels * (split + 1) / args.splits;",
                "end = pixels * (split + 1) / args.splits + (split + 1 < args.splits ? 1 : 0);",
            ]],
        ),
        suite::check_conv2d_backward_weight,
        6,
    ),
    (
        "the last of equal maxima wins",
        Fault::Kernels("pool", &[["candidate <= held", "candidate < held"]]),
        suite::check_pool,
        8,
    ),
    (
        "a sum loses what is no whole number of its units",
        Fault::Kernels("reduce", &[["deposit(words, term);", ""]]),
        suite::check_reductions,
        22,
    ),
    ("streams do not wait for one another", Fault::NoWaits, suite::check_pool, 8),
    ("an event is not recorded", Fault::NoRecords, suite::check_pool, 8),
    ("the host does not wait for what it reads", Fault::NoHostWaits, suite::check_pool, 8),
];

/// The same where tensor cores carry convolutions out, three products for each.
const TENSOR_FAULTS: [(&str, Fault, Check, usize); 4] = [
    (
        "what the rounding of a factor has left is forgotten",
        Fault::Kernels(
            "conv_tensor",
            &[["return __uint_as_float(__float_as_uint(x - rounded) & ~0x1fffu);", "return 0.0f;"]],
        ),
        suite::check_conv2d,
        6,
    ),
    (
        "factors are not rounded",
        Fault::Kernels("conv_tensor", &[["a[block][i][k] = to_tf32(x[k]);", "a[block][i][k] = x[k];"]]),
        suite::check_conv2d,
        6,
    ),
    (
        "pixels of a step are taken in another order than gradients",
        Fault::Kernels(
            "weight_tensor",
            &[[
                "shared.x[stage][STEP * block + 4 * k + of.in]",
                "shared.x[stage][STEP * block + 4 * (1 - k) + of.in]",
            ]],
        ),
        suite::check_conv2d_backward_weight,
        6,
    ),
    (
        "a copy is waited for too late",
        Fault::Kernels(
            "conv_tensor",
            &[["copy_async_wait<Tile::STAGES - 2>();", "copy_async_wait<Tile::STAGES - 1>();"]],
        ),
        suite::check_conv2d,
        6,
    ),
];

/// A device with a fault.
#[derive(Debug)]
struct Faulty {
    device: Simulated,
    fault: Fault,
    /// The file of kernels in place of another.
    unit: Option<&'static Unit>,
}

impl Faulty {
    fn new(device: Simulated, fault: Fault) -> Self {
        let unit = match fault {
            Fault::Kernels(of, changes) => Some(changed(of, changes)),
            _ => None,
        };
        Self { device, fault, unit }
    }
}

/// A file of kernels with changes; its name is that of the fault, as libraries are known by their names.
fn changed(of: &str, changes: &[[&str; 2]]) -> &'static Unit {
    let unit = UNITS.iter().find(|unit| unit.name == of).expect("there is such a file");
    let mut source = unit.text();
    for [from, to] in changes {
        assert!(source.contains(from), "`{of}` has no `{from}`");
        source = source.replacen(from, to, 1);
    }
    let name = format!(
        "{of}-fault-{:016x}",
        source.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31) ^ u64::from(byte))
    );
    // a few for the length of the test
    Box::leak(Box::new(Unit { name: name.leak(), source: source.leak(), kernels: unit.kernels }))
}

impl Driver for Faulty {
    fn facts(&self) -> &Facts {
        self.device.facts()
    }

    fn device(&self) -> MemoryDevice {
        self.device.device()
    }

    fn check_lent(&self, address: u64, bytes: usize) -> Result<(), DriverError> {
        self.device.check_lent(address, bytes)
    }

    unsafe fn record_lent(&self, event: Event, stream: u64) -> Result<(), DriverError> {
        // SAFETY: as the caller promises
        unsafe { self.device.record_lent(event, stream) }
    }

    fn gap_bytes(&self) -> usize {
        self.device.gap_bytes()
    }

    fn set_closed(&self, address: u64, bytes: usize, is_closed: bool) {
        self.device.set_closed(address, bytes, is_closed);
    }

    fn allocate(&self, bytes: usize) -> Result<Memory, DriverError> {
        self.device.allocate(bytes)
    }

    fn free(&self, memory: Memory) {
        self.device.free(memory);
    }

    fn allocate_pinned(&self, bytes: usize) -> Result<Pinned, DriverError> {
        self.device.allocate_pinned(bytes)
    }

    fn free_pinned(&self, pinned: Pinned) {
        self.device.free_pinned(pinned);
    }

    fn create_stream(&self) -> Result<Stream, DriverError> {
        self.device.create_stream()
    }

    fn destroy_stream(&self, stream: Stream) {
        self.device.destroy_stream(stream);
    }

    fn create_event(&self) -> Result<Event, DriverError> {
        self.device.create_event()
    }

    fn destroy_event(&self, event: Event) {
        self.device.destroy_event(event);
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), DriverError> {
        if matches!(self.fault, Fault::NoRecords) { Ok(()) } else { self.device.record(event, stream) }
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<(), DriverError> {
        if matches!(self.fault, Fault::NoWaits) { Ok(()) } else { self.device.wait(stream, event) }
    }

    fn synchronise_event(&self, event: Event) -> Result<(), DriverError> {
        if matches!(self.fault, Fault::NoHostWaits) { Ok(()) } else { self.device.synchronise_event(event) }
    }

    fn synchronise(&self, stream: Stream) -> Result<(), DriverError> {
        self.device.synchronise(stream)
    }

    fn function(&self, unit: &'static Unit, name: &str) -> Result<Function, DriverError> {
        let own = self.unit.filter(|own| own.kernels == unit.kernels);
        self.device.function(own.unwrap_or(unit), name)
    }

    unsafe fn launch(&self, stream: Stream, launch: &Launch, args: &[u8]) -> Result<(), DriverError> {
        // SAFETY: as the caller promises; what a fault lets kernels touch beyond it lies in memory of the simulated device
        unsafe { self.device.launch(stream, launch, args) }
    }

    unsafe fn copy(&self, stream: Stream, copy: &Copy) -> Result<(), DriverError> {
        // SAFETY: as the caller promises; a stream of the simulated device runs nothing beside others
        unsafe { self.device.copy(stream, copy) }
    }

    unsafe fn fill(&self, stream: Stream, address: u64, bytes: usize, byte: u8) -> Result<(), DriverError> {
        // SAFETY: as the caller promises
        unsafe { self.device.fill(stream, address, bytes, byte) }
    }
}

/// Whether a check fails in one of the orders, as the suite runs it.
fn is_found(fault: Fault, precision: Precision, check: Check, cases: usize) -> bool {
    ORDERS.into_iter().zip(SEED..).any(|(order, seed)| {
        let device = Simulated::new(Facts::h200(), order).expect("a compiler was found");
        let backend = CudaBackend::with_precision(Arc::new(Faulty::new(device, fault)), precision);
        catch_unwind(AssertUnwindSafe(|| check(&backend, seed, cases))).is_err()
    })
}

#[test]
fn the_suite_finds_nothing_where_nothing_is_planted() {
    if let Err(reason) = Simulated::new(Facts::h200(), Order::Forward) {
        eprintln!("skipped: {reason}");
        return;
    }
    for check in [
        suite::check_conv2d,
        suite::check_conv2d_winograd,
        suite::check_conv2d_backward_weight,
        suite::check_pool,
    ] {
        assert!(!is_found(Fault::None, Precision::F32, check, 6));
    }
}

#[test]
fn the_suite_finds_every_planted_fault() {
    if let Err(reason) = Simulated::new(Facts::h200(), Order::Forward) {
        eprintln!("skipped: {reason}");
        return;
    }
    let missed = |faults: &[(&'static str, Fault, Check, usize)], precision: Precision| -> Vec<&str> {
        let is_missed = |(_, fault, check, cases): &&(_, Fault, Check, usize)| {
            !is_found(*fault, precision, *check, *cases)
        };
        faults.iter().filter(is_missed).map(|(name, ..)| *name).collect()
    };
    assert_eq!(missed(&FAULTS, Precision::F32), [""; 0], "not found");
    assert_eq!(missed(&TENSOR_FAULTS, Precision::F32x3), [""; 0], "not found in three products");
}
