//! Every call of the driver made to fail in turn, and what is left after it.
#![cfg(all(unix, feature = "simulated"))]

use std::sync::Arc;

use tiled_cuda::CudaBackend;
use tiled_cuda::driver::Facts;
use tiled_cuda::driver::simulated::{Order, Simulated};
use tiled_geometry::{Interval, Region, Window};
use tiled_kernel::{
    Backend, Buffer, Conv, DeviceError, Epilogue, Kernel, Needs, NodeNeeds, Operands, ParamNeeds, Place,
    Reduction, ReductionNeeds, StoreNeeds, SweepNeeds, Work, copy_region,
};
use tiled_tensor::{Layout, Tensor};

const CHANNELS: usize = 8;
const EXTENTS: [i64; 2] = [12, 10];

/// A run by hand: a convolution in three bands, its weight gradient and a sum, a value kept whole, and regions both ways.
fn run(backend: &CudaBackend) -> Result<(Vec<f32>, f64), DeviceError> {
    let windows = [Window::new(3, 1, 1, 1).expect("a small window"); 2];
    let (in_channels, out_channels) = (CHANNELS, CHANNELS);
    let conv = Conv { in_channels, out_channels, groups: 1, windows, input: EXTENTS, output: EXTENTS };
    let kernel = Kernel::conv2d(conv, Epilogue::of_bias(true));
    let weights = vec![0.25_f32; conv.weight_len()];
    let bias = vec![1.0_f32; CHANNELS];
    let params: [&[f32]; 2] = [&weights, &bias];
    let reductions = [Reduction::ConvWeight(conv), Reduction::ChannelSum];
    let operands = Operands {
        batch: 1,
        inputs: &[CHANNELS, CHANNELS],
        params: &[weights.len(), CHANNELS],
        channels: CHANNELS,
    };
    let dynamic: &dyn Backend<f32> = backend;
    let support = |work| dynamic.support(&work, &operands).expect("supported");
    let bytes = support(Work::Map(kernel)).packed_bytes;
    let slots = [(reductions[0], 0), (reductions[1], 1)];
    let gathered = slots.map(|(reduction, slot)| ReductionNeeds {
        name: "sums",
        reduction,
        batch: 1,
        channels: CHANNELS,
        partial_bytes: support(Work::Reduce(reduction)).partial_bytes,
        slot,
    });
    let whole = Region::whole(EXTENTS);
    let layout = Layout::new(1, CHANNELS, dynamic.block(CHANNELS), whole, 12).expect("small");
    let ring = Layout::new(1, CHANNELS, dynamic.block(CHANNELS), whole, 7).expect("small");
    let needs = Needs {
        nodes: &[NodeNeeds { name: "conv", params: ParamNeeds::Packed { bytes } }],
        reductions: &gathered,
        stores: &[Some(StoreNeeds { name: "kept", layout, slot: 0 })],
        lanes: 2,
        queues: 2,
        window_elements: 2 * (ring.len() + layout.len()),
        threads: 1,
        workspace_bytes: support(Work::Reduce(reductions[0])).workspace_bytes,
    };
    let mut context = dynamic.open(&needs)?;
    context.pack(0, &kernel, &params)?;
    context.clear(0)?;
    context.clear(1)?;
    let image = Tensor::<f32>::from_fn([1, CHANNELS, 12, 10], |[_, c, y, x]| {
        f32::from(u8::try_from((c * 7 + y * 5 + x * 3) % 11).expect("small"))
    })
    .expect("small");
    let mut got = Vec::new();
    {
        let slots = [ring.len(), layout.len()];
        let sweep = SweepNeeds { queues: 2, slots: &slots, vectors: &[vec![0.5; 3]], adopted: &[] };
        let mut queues = context.queues(&sweep)?;
        let [queue, _other] = queues.as_mut_slice() else { panic!("two queues") };
        let rows = |begin, end| Region::from_rows_cols(Interval::new(begin, end), whole.cols());
        let output = Buffer { place: Place::Slot(1), layout };
        let mut held = 0;
        let mut tickets = Vec::new();
        for (wanted, needed) in [((0, 4), 5), ((4, 8), 9), ((8, 12), 12)] {
            let held_rows = Interval::new((needed - 7).max(0), needed);
            let input = Buffer { place: Place::Slot(0), layout: ring.with_rows(held_rows) };
            let region = rows(held, needed);
            let mut staged = queue.stage(&input, region)?;
            for c in 0..CHANNELS {
                for y in region.rows().begin()..region.rows().end() {
                    for x in 0..EXTENTS[1] {
                        staged.set(0, c, y, x, image.view().get(0, c, y, x));
                    }
                }
            }
            queue.push(&input, region)?;
            held = needed;
            let region = rows(wanted.0, wanted.1);
            queue.compute(0, &kernel, &[input], &output, region)?;
            queue.reduce(0, 0, &[], &[input, output], region)?;
            queue.reduce(1, 1, &[], &[output], region)?;
            queue.save(&output, 0, region)?;
            tickets.push((queue.fetch(&output, region)?, region));
            if tickets.len() > queue.depth() {
                let (ticket, region) = tickets.remove(0);
                collect(&queue.take(ticket)?, region, &mut got);
            }
        }
        for (ticket, region) in tickets {
            collect(&queue.take(ticket)?, region, &mut got);
        }
        queue.wait()?;
    }
    context.merge(0)?;
    context.merge(1)?;
    let mut gradient = vec![0.0; conv.weight_len()];
    context.unpack(0, &mut gradient)?;
    got.extend(gradient);
    let tiled_kernel::Partial::Exact(sums) = context.partial(1)? else { panic!("exact sums") };
    Ok((got, sums.iter().map(tiled_kernel::ExactSum::value).sum()))
}

fn collect(view: &tiled_tensor::View<'_, f32>, region: Region<2>, to: &mut Vec<f32>) {
    // through a window of the same blocks: the layout of what was fetched is the queue's own
    let block = view.layout().block();
    let layout = Layout::new(1, CHANNELS, block, Region::whole(EXTENTS), 12).expect("small");
    let mut data = vec![0.0; layout.len()];
    copy_region(view, &mut tiled_tensor::ViewMut::new(&mut data, layout), region);
    let held = tiled_tensor::View::new(&data, layout);
    for c in 0..CHANNELS {
        for y in region.rows().begin()..region.rows().end() {
            for x in 0..EXTENTS[1] {
                to.push(held.get(0, c, y, x));
            }
        }
    }
}

#[test]
fn every_call_that_fails_is_an_error_and_everything_is_given_back() {
    let Ok(device) = Simulated::new(Facts::h200(), Order::Forward) else {
        eprintln!("skipped: no C++ compiler");
        return;
    };
    let device = Arc::new(device);
    let (expected, sum) = run(&CudaBackend::new(Arc::<Simulated>::clone(&device))).expect("it works");
    assert_eq!(device.left(), [0; 4], "memory, pinned memory, streams, events");
    let of_outputs: f64 = expected[..CHANNELS * 120].iter().map(|value| f64::from(*value)).sum();
    assert_eq!(sum, of_outputs, "whole numbers of quarters are summed without rounding");
    let calls = device.calls();
    assert!(calls > 60, "only {calls} calls");
    for call in 0..calls {
        let device = Simulated::new(Facts::h200(), Order::Backward).expect("a compiler").failing(call);
        let device = Arc::new(device);
        let Err(error) = run(&CudaBackend::new(Arc::<Simulated>::clone(&device))) else {
            panic!("call {call} of {calls} did not fail");
        };
        assert!(error.to_string().contains(&format!("call {call} was to fail")), "{error}");
        assert_eq!(device.left(), [0; 4], "after {error}");
    }
}

#[test]
fn the_bits_of_a_run_do_not_depend_on_the_order_of_threads_blocks_and_streams() {
    let mut first = None;
    for order in [Order::Forward, Order::Backward, Order::Shuffled(1), Order::Shuffled(2)] {
        let Ok(device) = Simulated::new(Facts::h200(), order) else { return };
        let (values, sum) = run(&CudaBackend::new(Arc::new(device))).expect("it works");
        let bits: (Vec<u32>, u64) = (values.iter().map(|value| value.to_bits()).collect(), sum.to_bits());
        assert_eq!(*first.get_or_insert_with(|| bits.clone()), bits, "{order:?}");
    }
}

#[test]
fn memory_that_the_device_does_not_have_is_refused_by_name() {
    let facts = Facts { memory_bytes: 10_000, ..Facts::h200() };
    let Ok(device) = Simulated::new(facts, Order::Forward) else { return };
    let error = run(&CudaBackend::new(Arc::new(device))).expect_err("it must fail");
    let DeviceError::OutOfMemory { what, bytes } = error else { panic!("{error}") };
    assert_eq!(what, "the memory of a run on the device");
    assert!(bytes > 10_000);
}
