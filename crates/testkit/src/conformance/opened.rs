//! A backend with the memory of one case, whose calls go through a queue as those of a run do.

use tiled_geometry::{Interval, Region};
use tiled_kernel::{
    Backend, Buffer, Context, Kernel, Needs, NodeNeeds, Operands, ParamNeeds, Partial, Place, Queue,
    Reduction, ReductionNeeds, StoreNeeds, SweepNeeds, Work, copy_region,
};
use tiled_tensor::{Element, Layout};

use super::window::{Held, MOST_SPARE_ROWS, extents};

/// The lanes whose sums a case keeps apart.
const LANES: usize = 2;

/// The memory of a case: a kernel's parameters, a reduction's sums or both, and windows as large as the tensors.
#[derive(Debug)]
pub(super) struct Opened<'b, T: Element> {
    context: Box<dyn Context<T> + 'b>,
    /// What a reduction reads beside windows.
    vectors: Vec<Vec<T>>,
}

impl<'b, T: Element> Opened<'b, T> {
    /// For calls of a kernel with tensors of these shapes, the last of which is the output, and with a value kept whole of its shape.
    pub(super) fn for_kernel(
        backend: &'b dyn Backend<T>,
        kernel: &Kernel,
        params: &[Vec<T>],
        shapes: &[[usize; 4]],
    ) -> Self {
        let (output, inputs) = shapes.split_last().expect("an output");
        let channels: Vec<usize> = inputs.iter().map(|shape| shape[1]).collect();
        let lens: Vec<usize> = params.iter().map(Vec::len).collect();
        let operands = Operands { batch: output[0], inputs: &channels, params: &lens, channels: output[1] };
        let support = backend.support(&Work::Map(*kernel), &operands).expect("a supported kernel");
        let packed = ParamNeeds::Packed { bytes: support.packed_bytes };
        let nodes = [NodeNeeds { name: "the case", params: packed }];
        let stores = [Some(StoreNeeds { name: "the case", layout: kept(backend, *output), slot: 0 })];
        let needs = Needs {
            nodes: &nodes,
            stores: &stores,
            workspace_bytes: support.workspace_bytes,
            ..needs(backend, shapes)
        };
        let mut context = backend.open(&needs).expect("memory for a small case");
        let values: Vec<&[T]> = params.iter().map(Vec::as_slice).collect();
        context.pack(0, kernel, &values).expect("a device that works");
        Self { context, vectors: Vec::new() }
    }

    /// For shares of a reduction over tensors of these shapes.
    pub(super) fn for_reduction(
        backend: &'b dyn Backend<T>,
        reduction: &Reduction,
        params: &[Vec<T>],
        [batch, channels]: [usize; 2],
        shapes: &[[usize; 4]],
    ) -> Self {
        let inputs: Vec<usize> = shapes.iter().map(|shape| shape[1]).collect();
        let lens: Vec<usize> = params.iter().map(Vec::len).collect();
        let operands = Operands { batch, inputs: &inputs, params: &lens, channels };
        let support = backend.support(&Work::Reduce(*reduction), &operands).expect("a supported reduction");
        let (reduction, partial_bytes) = (*reduction, support.partial_bytes);
        let reductions =
            [ReductionNeeds { name: "the case", reduction, batch, channels, partial_bytes, slot: 0 }];
        let needs = Needs {
            reductions: &reductions,
            workspace_bytes: support.workspace_bytes,
            ..needs(backend, shapes)
        };
        let mut context = backend.open(&needs).expect("memory for a small case");
        context.clear(0).expect("a device that works");
        Self { context, vectors: params.to_vec() }
    }

    /// For shares of an image of this shape into its maxima, then calls of a kernel that reads them.
    pub(super) fn for_extrema(backend: &'b dyn Backend<T>, kernel: &Kernel, shape: [usize; 4]) -> Self {
        let ([batch, channels, ..], reduction) = (shape, Reduction::ImageMax);
        let operands = Operands { batch, inputs: &[channels], params: &[], channels };
        let support = |work| backend.support(&work, &operands).expect("supported work");
        let (map, gather) = (support(Work::Map(*kernel)), support(Work::Reduce(reduction)));
        let partial_bytes = gather.partial_bytes;
        let needs = Needs {
            nodes: &[NodeNeeds { name: "the case", params: ParamNeeds::Extrema { reduction: 0 } }],
            reductions: &[ReductionNeeds {
                name: "the case",
                reduction,
                batch,
                channels,
                partial_bytes,
                slot: 0,
            }],
            workspace_bytes: map.workspace_bytes.max(gather.workspace_bytes),
            ..needs(backend, &[[batch, channels, 1, 1], shape])
        };
        let mut context = backend.open(&needs).expect("memory for a small case");
        context.clear(0).expect("a device that works");
        Self { context, vectors: Vec::new() }
    }

    /// Computes a region of the window `output`.
    pub(super) fn compute(
        &mut self,
        kernel: &Kernel,
        inputs: &[Held<T>],
        output: &mut Held<T>,
        region: Region<2>,
    ) {
        self.in_windows(inputs, output, |queue, from, to| {
            queue.compute(0, kernel, from, to, region).expect("a device that works");
        });
    }

    /// Computes these regions, one after another, into the value that is kept, and copies all of it to the window `output`.
    pub(super) fn compute_kept(
        &mut self,
        kernel: &Kernel,
        inputs: &[Held<T>],
        output: &mut Held<T>,
        regions: &[Region<2>],
    ) {
        self.in_windows(inputs, output, |queue, from, to| {
            for region in regions {
                let kept = Buffer { place: Place::Store(0), layout: to.layout.with_rows(region.rows()) };
                queue.compute(0, kernel, from, &kept, *region).expect("a device that works");
            }
            queue.load(0, to, to.layout.region()).expect("a device that works");
        });
    }

    /// Makes calls on windows of the inputs and one of the output, which is then read back.
    fn in_windows(
        &mut self,
        inputs: &[Held<T>],
        output: &mut Held<T>,
        calls: impl FnOnce(&mut dyn Queue<T>, &[Buffer], &Buffer),
    ) {
        let slots: Vec<usize> = inputs.iter().chain([&*output]).map(|window| window.layout.len()).collect();
        let sweep = SweepNeeds { queues: 1, slots: &slots, vectors: &[], adopted: &[] };
        let mut queues = self.context.queues(&sweep).expect("memory for a small case");
        let queue = queues.first_mut().expect("a queue").as_mut();
        let buffers = send(queue, inputs.iter().chain([&*output]));
        let (to, from) = buffers.split_last().expect("an output");
        calls(queue, from, to);
        if to.layout.region().is_empty() {
            return queue.wait().expect("a device that works");
        }
        let ticket = queue.fetch(to, to.layout.region()).expect("a device that works");
        let got = queue.take(ticket).expect("a device that works");
        *output = Held { data: got.data().to_vec(), layout: *got.layout() };
    }

    /// Takes a share into a lane's sums.
    pub(super) fn reduce(&mut self, lane: usize, inputs: &[Held<T>], share: Region<2>) {
        let slots: Vec<usize> = inputs.iter().map(|window| window.layout.len()).collect();
        let vectors: Vec<usize> = (0..self.vectors.len()).collect();
        let sweep = SweepNeeds { queues: 1, slots: &slots, vectors: &self.vectors, adopted: &[] };
        let mut queues = self.context.queues(&sweep).expect("memory for a small case");
        let queue = queues.first_mut().expect("a queue").as_mut();
        let buffers = send(queue, inputs.iter());
        queue.reduce(lane, 0, &vectors, &buffers, share).expect("a device that works");
        queue.wait().expect("a device that works");
    }

    /// What all lanes have gathered.
    pub(super) fn gathered(&mut self) -> Partial<T> {
        self.context.merge(0).expect("a device that works");
        self.context.partial(0).expect("a device that works").clone()
    }

    /// The same of a weight gradient, OIHW, of so many elements.
    pub(super) fn weights(&mut self, len: usize) -> Vec<T> {
        let mut weights = vec![T::ZERO; len];
        self.context.merge(0).expect("a device that works");
        self.context.unpack(0, &mut weights).expect("a device that works");
        weights
    }
}

/// How a value of this shape lies that is kept whole.
fn kept<T: Element>(backend: &dyn Backend<T>, shape: [usize; 4]) -> Layout {
    let [batch, channels, rows, _] = shape;
    let region = Region::whole(extents(shape));
    Layout::new(batch, channels, backend.block(channels), region, rows).expect("a small tensor")
}

/// Room for a window of each tensor.
fn needs<'n, T: Element>(backend: &dyn Backend<T>, shapes: &[[usize; 4]]) -> Needs<'n> {
    let window_elements = shapes.iter().map(|shape| {
        let region = Region::whole(extents(*shape));
        let (block, rows) = (backend.block(shape[1]), shape[2] + MOST_SPARE_ROWS);
        Layout::new(shape[0], shape[1], block, region, rows).expect("a small window").len()
    });
    Needs {
        nodes: &[],
        reductions: &[],
        stores: &[],
        lanes: LANES,
        queues: 1,
        window_elements: window_elements.sum(),
        threads: 1,
        workspace_bytes: 0,
    }
}

/// Windows in slots of their own, with all that they store where the host's memory is the queue's.
fn send<'h, T: Element>(queue: &mut dyn Queue<T>, windows: impl Iterator<Item = &'h Held<T>>) -> Vec<Buffer> {
    let mut buffers = Vec::new();
    for (slot, window) in windows.enumerate() {
        let buffer = Buffer { place: Place::Slot(slot), layout: window.layout };
        let region = window.layout.region();
        if !region.is_empty() {
            if queue.depth() > 0 && region.rows().len() > 1 {
                // in bands, as threads of the host write them side by side
                let (rows, cut) = (region.rows(), region.rows().begin() + 1);
                let bands = [Interval::new(rows.begin(), cut), Interval::new(cut, rows.end())]
                    .map(|rows| Region::from_rows_cols(rows, region.cols()));
                let staged = queue.stage_bands(&buffer, &bands).expect("a device that works");
                for (mut staged, band) in staged.into_iter().zip(bands) {
                    copy_region(&window.view(), &mut staged, band);
                }
            } else {
                let mut staged = queue.stage(&buffer, region).expect("a device that works");
                if *staged.layout() == window.layout {
                    staged.data_mut()[..window.data.len()].copy_from_slice(&window.data);
                } else {
                    copy_region(&window.view(), &mut staged, region);
                }
            }
            queue.push(&buffer, region).expect("a device that works");
        }
        buffers.push(buffer);
    }
    buffers
}
