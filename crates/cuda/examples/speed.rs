//! What a device and its kernels reach, one JSON object a line: `name`, `value`, `unit` and the `bar` that it should reach, if there is one.
//!
//!     cargo run -p tiled-cuda --features device --example speed -- --device cuda --rows 10
//!
//! Rows: `peaks`, `9` (bandwidths), `10` (the convolutions of VGG-16 on 16 rows of a picture 20480 wide), `11` (small convolutions). A device is
//! `cuda`, `cuda:N` or `cuda-sim`, with `+tf32` or `+f32x3` for tensor cores; `--small` is for the simulated one, whose times mean nothing.
#![expect(clippy::print_stdout, reason = "its lines are its result")]
#![expect(clippy::cast_precision_loss, reason = "rates")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use tiled_cuda::driver::gpu::Gpu;
use tiled_cuda::driver::{Driver, Facts};
use tiled_cuda::peaks::{Effort, Peaks};
use tiled_cuda::{CudaBackend, Precision};
use tiled_geometry::{Interval, Region, Window};
use tiled_kernel::{
    Activation, Algorithm, Backend, Buffer, Conv, Epilogue, Kernel, Needs, NodeNeeds, Operands, ParamNeeds,
    Place, Pool, Queue, Reduction, ReductionNeeds, Support, SweepNeeds, Work,
};
use tiled_tensor::Layout;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (mut device, mut rows, mut is_small) = ("cuda".to_owned(), "peaks".to_owned(), false);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--small" => is_small = true,
            "--device" => device = args.next().ok_or("--device wants a name")?,
            "--rows" => rows = args.next().ok_or("--rows wants a name")?,
            other => return Err(format!("unknown argument `{other}`").into()),
        }
    }
    let (place, precision) = match device.split_once('+') {
        Some((place, precision)) => (place, precision.parse()?),
        None => (device.as_str(), Precision::F32),
    };
    let backend = CudaBackend::with_precision(open(place)?, precision);
    let bed = Bed { backend: &backend, precision, is_small };
    match rows.as_str() {
        "peaks" => bed.tell_peaks(&bed.peaks()?),
        "9" => bed.bandwidths()?,
        "10" => bed.convolutions()?,
        "11" => bed.small_convolutions()?,
        other => return Err(format!("no row `{other}`").into()),
    }
    Ok(())
}

fn open(device: &str) -> Result<Arc<dyn Driver>, Box<dyn Error>> {
    #[cfg(all(unix, feature = "simulated"))]
    if device.starts_with("cuda-sim") {
        use tiled_cuda::driver::simulated::{Order, Simulated};
        return Ok(Arc::new(Simulated::new(Facts::h200(), Order::Forward)?));
    }
    let index = device.strip_prefix("cuda").map(|rest| rest.trim_start_matches(':'));
    let index = index.ok_or_else(|| format!("unknown device `{device}`"))?;
    Ok(Arc::new(Gpu::new(if index.is_empty() { 0 } else { index.parse()? })?))
}

/// What is timed, and on what.
struct Bed<'b> {
    backend: &'b CudaBackend,
    precision: Precision,
    is_small: bool,
}

fn tell(name: &str, value: f64, unit: &str, bar: Option<f64>) {
    let bar = bar.map_or_else(|| "null".to_owned(), |bar| bar.to_string());
    println!("{{\"name\": \"{name}\", \"value\": {value}, \"unit\": \"{unit}\", \"bar\": {bar}}}");
}

/// A call to time: work, its inputs and its output.
struct Call {
    work: Work,
    /// The channels and the region that a window of each input holds.
    inputs: Vec<(usize, Region<2>)>,
    batch: usize,
    channels: usize,
    /// What is computed, or the share that is taken.
    region: Region<2>,
    params: Vec<usize>,
}

impl Bed<'_> {
    fn peaks(&self) -> Result<Peaks, Box<dyn Error>> {
        let small = Effort { bytes: 1 << 16, rounds: 4, times: 1 };
        Ok(self.backend.peaks(if self.is_small { small } else { Effort::GPU })?)
    }

    fn tell_peaks(&self, peaks: &Peaks) {
        let Peaks { flops: [single, double], copied, sent, received } = *peaks;
        tell("multiply-adds f32", single / 1e12, "TFLOP/s", None);
        tell("multiply-adds f64", double / 1e12, "TFLOP/s", None);
        tell("copy on the device", copied / 1e9, "GB/s", None);
        tell("pinned to device", sent / 1e9, "GB/s", None);
        tell("device to pinned", received / 1e9, "GB/s", None);
    }

    /// The seconds of a call: the median of runs of many, each waited for at its end.
    fn seconds(&self, call: &Call) -> Result<f64, Box<dyn Error>> {
        let backend: &dyn Backend<f32> = self.backend;
        let channels: Vec<usize> = call.inputs.iter().map(|(channels, _)| *channels).collect();
        let operands =
            Operands { batch: call.batch, inputs: &channels, params: &call.params, channels: call.channels };
        let support: Support = backend.support(&call.work, &operands).ok_or("not supported")?;
        let layout = |channels: usize, region: Region<2>| {
            let rows = usize::try_from(region.rows().len()).unwrap_or(0);
            Layout::new(call.batch, channels, backend.block(channels), region, rows)
        };
        let mut layouts = Vec::new();
        for (channels, region) in &call.inputs {
            layouts.push(layout(*channels, *region)?);
        }
        let is_map = matches!(call.work, Work::Map(_));
        if is_map {
            layouts.push(layout(call.channels, call.region)?);
        }
        let slots: Vec<usize> = layouts.iter().map(Layout::len).collect();
        let reductions: Vec<ReductionNeeds<'_>> = match call.work {
            Work::Map(_) => Vec::new(),
            Work::Reduce(reduction) => vec![ReductionNeeds {
                name: "sums",
                reduction,
                batch: call.batch,
                channels: call.channels,
                partial_bytes: support.partial_bytes,
                slot: 0,
            }],
        };
        let needs = Needs {
            nodes: &[NodeNeeds { name: "work", params: ParamNeeds::Packed { bytes: support.packed_bytes } }],
            reductions: &reductions,
            stores: &[],
            lanes: 1,
            queues: 1,
            window_elements: slots.iter().sum(),
            threads: 1,
            workspace_bytes: support.workspace_bytes,
        };
        let mut context = backend.open(&needs)?;
        let sweep = SweepNeeds { queues: 1, slots: &slots, vectors: &[], adopted: &[] };
        let mut queues = context.queues(&sweep)?;
        let queue = queues.first_mut().ok_or("no queue")?;
        let buffers: Vec<Buffer> = layouts
            .iter()
            .enumerate()
            .map(|(slot, layout)| Buffer { place: Place::Slot(slot), layout: *layout })
            .collect();
        let (inputs, output) = buffers.split_at(call.inputs.len());
        fill(queue.as_mut(), inputs)?;
        let once = |queue: &mut dyn Queue<f32>| match &call.work {
            Work::Map(kernel) => queue.compute(0, kernel, inputs, &output[0], call.region),
            Work::Reduce(_) => queue.reduce(0, 0, &[], inputs, call.region),
        };
        let (times, runs) = if self.is_small { (1, 1) } else { (20, 7) };
        let mut all = Vec::new();
        for run in 0..=runs {
            queue.wait()?;
            let begin = Instant::now();
            for _ in 0..times {
                once(queue.as_mut())?;
            }
            queue.wait()?;
            if run > 0 {
                all.push(begin.elapsed().as_secs_f64() / f64::from(times));
            }
        }
        all.sort_by(f64::total_cmp);
        Ok(all[all.len() / 2])
    }

    fn bandwidths(&self) -> Result<(), Box<dyn Error>> {
        let peaks = self.peaks()?;
        self.tell_peaks(&peaks);
        let side = if self.is_small { 32 } else { 4096 };
        let whole = Region::whole([side, side]);
        let elements = (64 * side * side) as f64 * 4.0;
        let share = |name: &str, bytes: f64, call: &Call, bar: f64| -> Result<(), Box<dyn Error>> {
            let reached = bytes / self.seconds(call)?;
            tell(name, 100.0 * reached / peaks.copied, "% of a copy", Some(100.0 * bar));
            Ok(())
        };
        let map = |kernel: Kernel, inputs: Vec<(usize, Region<2>)>, region: Region<2>| Call {
            work: Work::Map(kernel),
            inputs,
            batch: 1,
            channels: 64,
            region,
            params: Vec::new(),
        };
        let half = Region::whole([side / 2, side / 2]);
        share("max_pool2d 4096²", 1.25 * elements, &map(pooling(side)?, vec![(64, whole)], half), 0.7)?;
        let relu = Kernel::Activation(Activation::Relu);
        share("relu", 2.0 * elements, &map(relu, vec![(64, whole)], whole), 0.7)?;
        share("add", 3.0 * elements, &map(Kernel::Add, vec![(64, whole); 2], whole), 0.7)?;
        for (name, reduction) in
            [("sums of channels", Reduction::ChannelSum), ("moments", Reduction::Moments)]
        {
            let call = Call {
                work: Work::Reduce(reduction),
                inputs: vec![(64, whole)],
                batch: 1,
                channels: 64,
                region: whole,
                params: Vec::new(),
            };
            share(name, elements, &call, 0.5)?;
        }
        Ok(())
    }

    /// Each convolution of VGG-16 on 16 full rows of a picture 20480 wide: forward, and the gradients for the input and for the weights.
    fn convolutions(&self) -> Result<(), Box<dyn Error>> {
        let peaks = self.peaks()?;
        let stages: [&[[usize; 2]]; 5] = [
            &[[3, 64], [64, 64]],
            &[[64, 128], [128, 128]],
            &[[128, 256], [256, 256]],
            &[[256, 512], [512, 512]],
            &[[512, 512]],
        ];
        for (stage, convs) in stages.iter().enumerate() {
            let width = if self.is_small { 16 } else { 20480 >> stage };
            for [from, to] in convs.iter().copied() {
                let conv = convolution([from, to], [64, width])?;
                let rows =
                    |begin, end| Region::from_rows_cols(Interval::new(begin, end), Interval::new(0, width));
                let (own, around) = (rows(8, 24), rows(7, 25));
                let flops = 2.0 * 9.0 * (from * to) as f64 * (16 * width) as f64;
                for (name, call) in three(conv, own, around, 1) {
                    let reached = flops / self.seconds(&call)?;
                    let name = format!("{from} to {to} at {width}, {name}");
                    // few channels on one side are bound by what they move
                    let is_wide = from.min(to) >= 64;
                    if self.precision == Precision::F32 {
                        if name.ends_with("forward") && conv.suits_winograd() {
                            let reached = flops / self.seconds(&by_winograd(conv, own, around, 1))?;
                            tell(
                                &format!("{name}, Winograd"),
                                100.0 * reached / peaks.flops[0],
                                "% of multiply-adds",
                                None,
                            );
                        }
                        let share = 100.0 * reached / peaks.flops[0];
                        tell(&name, share, "% of multiply-adds", is_wide.then_some(60.0));
                    } else {
                        let bar = (is_wide && self.precision == Precision::Tf32).then_some(150.0);
                        tell(&format!("{name}, {}", self.precision), reached / 1e12, "TFLOP/s", bar);
                    }
                }
            }
        }
        Ok(())
    }

    /// Milliseconds of small convolutions, forward and backward, and of a pooling.
    fn small_convolutions(&self) -> Result<(), Box<dyn Error>> {
        for (batch, from, size, to) in [(4, 3, 32, 16), (8, 32, 64, 64), (8, 64, 128, 128)] {
            let conv = convolution([from, to], [size, size])?;
            let whole = Region::whole([size, size]);
            let mut all = Vec::new();
            for (_, call) in three(conv, whole, whole, batch) {
                all.push(self.seconds(&call)?);
            }
            let name = format!("{batch}x{from}x{size} to {to}");
            tell(&format!("{name} forward"), 1e3 * all[0], "ms", None);
            tell(&format!("{name} backward"), 1e3 * (all[1] + all[2]), "ms", None);
            if self.precision == Precision::F32 && conv.suits_winograd() {
                let seconds = self.seconds(&by_winograd(conv, whole, whole, batch))?;
                tell(&format!("{name} forward, Winograd"), 1e3 * seconds, "ms", None);
            }
        }
        let side = if self.is_small { 32 } else { 4096 };
        let call = Call {
            work: Work::Map(pooling(side)?),
            inputs: vec![(64, Region::whole([side, side]))],
            batch: 1,
            channels: 64,
            region: Region::whole([side / 2, side / 2]),
            params: Vec::new(),
        };
        tell("max_pool", 1e3 * self.seconds(&call)?, "ms", None);
        Ok(())
    }
}

/// Puts numbers into windows: zeros would take less power, and less time.
fn fill(queue: &mut dyn Queue<f32>, buffers: &[Buffer]) -> Result<(), Box<dyn Error>> {
    for buffer in buffers {
        let rows = buffer.layout.rows();
        // by the row, so that pinned memory stays small
        for row in rows.begin()..rows.end() {
            let region = Region::from_rows_cols(Interval::new(row, row + 1), buffer.layout.cols());
            let mut staged = queue.stage(buffer, region)?;
            for (place, value) in staged.data_mut().iter_mut().enumerate() {
                *value = ((place * 37 + 11) % 251) as f32 / 251.0 - 0.5;
            }
            queue.push(buffer, region)?;
        }
    }
    Ok(queue.wait()?)
}

/// A convolution of 3×3 with padding, and the same of its gradients: forward, for the input, for the weights.
fn three(conv: Conv, own: Region<2>, around: Region<2>, batch: usize) -> [(&'static str, Call); 3] {
    let (from, to, weights) = (conv.in_channels, conv.out_channels, conv.weight_len());
    let forward = Kernel::conv2d(conv, Epilogue::of_bias(true));
    let backward = Kernel::Conv2dBackwardInput { conv, epilogue: Epilogue::NONE };
    let call = |work, inputs, channels, params| Call { work, inputs, batch, channels, region: own, params };
    [
        ("forward", call(Work::Map(forward), vec![(from, around)], to, vec![weights, to])),
        ("input", call(Work::Map(backward), vec![(to, around)], from, vec![weights])),
        (
            "weights",
            call(Work::Reduce(Reduction::ConvWeight(conv)), vec![(from, around), (to, own)], to, Vec::new()),
        ),
    ]
}

/// The forward pass by Winograd's filtering.
fn by_winograd(conv: Conv, own: Region<2>, around: Region<2>, batch: usize) -> Call {
    let [(_, sums), ..] = three(conv, own, around, batch);
    let (algorithm, epilogue) = (Algorithm::Winograd, Epilogue::of_bias(true));
    Call { work: Work::Map(Kernel::Conv2d { conv, algorithm, epilogue }), ..sums }
}

fn convolution([in_channels, out_channels]: [usize; 2], input: [i64; 2]) -> Result<Conv, Box<dyn Error>> {
    let windows = [Window::new(3, 1, 1, 1)?; 2];
    Ok(Conv { in_channels, out_channels, groups: 1, windows, input, output: input })
}

/// Pooling of 2×2 over a square.
fn pooling(side: i64) -> Result<Kernel, Box<dyn Error>> {
    let windows = [Window::new(2, 2, 1, 0)?; 2];
    let (input, output) = ([side, side], [side / 2, side / 2]);
    Ok(Kernel::MaxPool2d(Pool { windows, padding_after: [0, 0], input, output, counts_padding: false }))
}
