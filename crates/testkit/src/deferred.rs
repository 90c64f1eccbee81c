//! A backend whose calls run later, on another thread, from copies: what a device does, without one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tiled_geometry::Region;
use tiled_kernel::{
    Backend, Buffer, Context, DeviceError, Kernel, Needs, Partial, Queue, SweepNeeds, Ticket, copy_region,
    forward,
};
use tiled_tensor::{DeviceTensor, Element, Layout, PartMut, View, ViewMut};

/// A backend that carries out another one's calls later. Nothing has happened when a call returns; what the host writes and reads are
/// copies of the region alone, in a layout of their own; several regions are under way at a time.
#[derive(Debug)]
pub struct Deferred<'b, T: Element> {
    backend: &'b dyn Backend<T>,
    faults: Faults,
}

/// Which call fails.
#[derive(Debug)]
struct Faults {
    /// The calls so far, of all queues.
    calls: AtomicU64,
    fails: Option<u64>,
}

impl<'b, T: Element> Deferred<'b, T> {
    /// The backend with its calls put off.
    #[must_use]
    pub const fn new(backend: &'b dyn Backend<T>) -> Self {
        Self { backend, faults: Faults { calls: AtomicU64::new(0), fails: None } }
    }

    /// The same, where the call of this number, from zero, and those after it in its queue fail.
    #[must_use]
    pub const fn failing(backend: &'b dyn Backend<T>, call: u64) -> Self {
        Self { backend, faults: Faults { calls: AtomicU64::new(0), fails: Some(call) } }
    }

    /// The calls that have run, those that failed among them.
    pub fn calls(&self) -> u64 {
        self.faults.calls.load(Ordering::Relaxed)
    }
}

impl Faults {
    fn count(&self) -> Result<(), DeviceError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if self.fails == Some(call) {
            return Err(DeviceError::Failed {
                call: format!("call {call}"),
                message: "it was to fail".into(),
            });
        }
        Ok(())
    }
}

impl<T: Element> Backend<T> for Deferred<'_, T> {
    forward!(T, |deferred| deferred.backend; name block support seconds transfers_beside workers);

    fn open<'c>(&'c self, needs: &Needs<'_>) -> Result<Box<dyn Context<T> + 'c>, DeviceError> {
        Ok(Box::new(DeferredContext { context: self.backend.open(needs)?, faults: &self.faults }))
    }
}

#[derive(Debug)]
struct DeferredContext<'c, T: Element> {
    context: Box<dyn Context<T> + 'c>,
    faults: &'c Faults,
}

impl<T: Element> Context<T> for DeferredContext<'_, T> {
    fn pack(&mut self, node: usize, kernel: &Kernel, params: &[&[T]]) -> Result<(), DeviceError> {
        self.faults.count()?;
        self.context.pack(node, kernel, params)
    }

    fn lend(&mut self, tensors: &[DeviceTensor<T>]) -> Result<(), DeviceError> {
        self.context.lend(tensors)
    }

    fn queues<'q>(
        &'q mut self,
        sweep: &SweepNeeds<'q, T>,
    ) -> Result<Vec<Box<dyn Queue<T> + 'q>>, DeviceError> {
        let faults = self.faults;
        let queues = self.context.queues(sweep)?.into_iter();
        Ok(queues
            .map(|queue| Box::new(DeferredQueue::new(queue, faults)) as Box<dyn Queue<T> + 'q>)
            .collect())
    }

    fn clear(&mut self, reduction: usize) -> Result<(), DeviceError> {
        self.faults.count()?;
        self.context.clear(reduction)
    }

    fn merge(&mut self, reduction: usize) -> Result<(), DeviceError> {
        self.faults.count()?;
        self.context.merge(reduction)
    }

    fn partial(&mut self, reduction: usize) -> Result<&Partial<T>, DeviceError> {
        self.faults.count()?;
        self.context.partial(reduction)
    }

    fn unpack(&mut self, reduction: usize, result: &mut [T]) -> Result<(), DeviceError> {
        self.faults.count()?;
        self.context.unpack(reduction, result)
    }
}

/// A call that was made and has not run.
enum Call<T> {
    Compute { node: usize, kernel: Kernel, inputs: Vec<Buffer>, output: Buffer, region: Region<2> },
    Reduce { lane: usize, reduction: usize, vectors: Vec<usize>, inputs: Vec<Buffer>, share: Region<2> },
    Load { store: usize, window: Buffer, region: Region<2> },
    Save { window: Buffer, store: usize, region: Region<2> },
    Push { window: Buffer, region: Region<2>, data: Vec<T> },
    Fetch { ticket: Ticket, window: Buffer, region: Region<2> },
    Import { tensor: DeviceTensor<T>, window: Buffer, region: Region<2> },
    Export { window: Buffer, tensor: DeviceTensor<T>, region: Region<2> },
}

struct DeferredQueue<'q, T: Element> {
    queue: Box<dyn Queue<T> + 'q>,
    faults: &'q Faults,
    calls: Vec<Call<T>>,
    /// What the host writes at the moment: bands, each by itself.
    staged: Vec<(Layout, Vec<T>)>,
    /// What was fetched and has come, in order.
    came: VecDeque<(Ticket, Layout, Vec<T>)>,
    /// What the host reads at the moment.
    taken: Vec<T>,
    tickets: u64,
    error: Option<DeviceError>,
}

/// The regions that are under way at a time, and the calls that are put off at most.
const DEPTH: usize = 3;
const MOST_CALLS: usize = 40;

impl<'q, T: Element> DeferredQueue<'q, T> {
    fn new(queue: Box<dyn Queue<T> + 'q>, faults: &'q Faults) -> Self {
        let (calls, staged, came, taken) = Default::default();
        Self { queue, faults, calls, staged, came, taken, tickets: 0, error: None }
    }

    fn put_off(&mut self, call: Call<T>) -> Result<(), DeviceError> {
        self.calls.push(call);
        if self.calls.len() > MOST_CALLS { self.flush() } else { Ok(()) }
    }

    /// Runs what was put off, on another thread.
    fn flush(&mut self) -> Result<(), DeviceError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let calls = std::mem::take(&mut self.calls);
        let run = || calls.into_iter().try_for_each(|call| self.run(call));
        let result = thread::scope(|scope| scope.spawn(run).join());
        let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.error = result.as_ref().err().cloned();
        result
    }

    fn run(&mut self, call: Call<T>) -> Result<(), DeviceError> {
        self.faults.count()?;
        let queue = &mut self.queue;
        match call {
            Call::Compute { node, kernel, inputs, output, region } => {
                queue.compute(node, &kernel, &inputs, &output, region)
            }
            Call::Reduce { lane, reduction, vectors, inputs, share } => {
                queue.reduce(lane, reduction, &vectors, &inputs, share)
            }
            Call::Load { store, window, region } => queue.load(store, &window, region),
            Call::Save { window, store, region } => queue.save(&window, store, region),
            Call::Push { window, region, data } => {
                let data = View::new(&data, compact(&window.layout, region));
                copy_region(&data, &mut queue.stage(&window, region)?, region);
                queue.push(&window, region)
            }
            Call::Fetch { ticket, window, region } => {
                let asked = queue.fetch(&window, region)?;
                let layout = compact(&window.layout, region);
                let mut data = nothing(&layout);
                let view = queue.take(asked)?;
                copy_region(&view, &mut ViewMut::new(&mut data, layout), region);
                self.came.push_back((ticket, layout, data));
                Ok(())
            }
            Call::Import { tensor, window, region } => queue.import(&tensor, &window, region),
            Call::Export { window, tensor, region } => queue.export(&window, &tensor, region),
        }
    }
}

impl<T: Element> Queue<T> for DeferredQueue<'_, T> {
    fn compute(
        &mut self,
        node: usize,
        kernel: &Kernel,
        inputs: &[Buffer],
        output: &Buffer,
        region: Region<2>,
    ) -> Result<(), DeviceError> {
        let (kernel, inputs, output) = (*kernel, inputs.to_vec(), *output);
        self.put_off(Call::Compute { node, kernel, inputs, output, region })
    }

    fn compute_part(
        &mut self,
        node: usize,
        kernel: &Kernel,
        inputs: &[Buffer],
        output: PartMut<'_, T>,
        region: Region<2>,
    ) -> Result<(), DeviceError> {
        self.flush()?;
        self.faults.count()?;
        self.queue.compute_part(node, kernel, inputs, output, region)
    }

    fn reduce(
        &mut self,
        lane: usize,
        reduction: usize,
        vectors: &[usize],
        inputs: &[Buffer],
        share: Region<2>,
    ) -> Result<(), DeviceError> {
        let (vectors, inputs) = (vectors.to_vec(), inputs.to_vec());
        self.put_off(Call::Reduce { lane, reduction, vectors, inputs, share })
    }

    fn load(&mut self, store: usize, window: &Buffer, region: Region<2>) -> Result<(), DeviceError> {
        self.put_off(Call::Load { store, window: *window, region })
    }

    fn save(&mut self, window: &Buffer, store: usize, region: Region<2>) -> Result<(), DeviceError> {
        self.put_off(Call::Save { window: *window, store, region })
    }

    fn stage(&mut self, window: &Buffer, region: Region<2>) -> Result<ViewMut<'_, T>, DeviceError> {
        Ok(self.stage_bands(window, &[region])?.remove(0))
    }

    fn stage_bands(
        &mut self,
        window: &Buffer,
        bands: &[Region<2>],
    ) -> Result<Vec<ViewMut<'_, T>>, DeviceError> {
        let layouts = bands.iter().map(|band| compact(&window.layout, *band));
        self.staged = layouts.map(|layout| (layout, nothing(&layout))).collect();
        Ok(self.staged.iter_mut().map(|(layout, data)| ViewMut::new(data, *layout)).collect())
    }

    fn push(&mut self, window: &Buffer, _region: Region<2>) -> Result<(), DeviceError> {
        std::mem::take(&mut self.staged).into_iter().try_for_each(|(layout, data)| {
            self.put_off(Call::Push { window: *window, region: layout.region(), data })
        })
    }

    fn fetch(&mut self, window: &Buffer, region: Region<2>) -> Result<Ticket, DeviceError> {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.put_off(Call::Fetch { ticket, window: *window, region })?;
        Ok(ticket)
    }

    fn take(&mut self, ticket: Ticket) -> Result<View<'_, T>, DeviceError> {
        self.flush()?;
        let place = self.came.iter().position(|(came, ..)| *came == ticket);
        let (_, layout, data) =
            place.and_then(|place| self.came.remove(place)).expect("what is taken was fetched");
        self.taken = data;
        Ok(View::new(&self.taken, layout))
    }

    fn import(
        &mut self,
        tensor: &DeviceTensor<T>,
        window: &Buffer,
        region: Region<2>,
    ) -> Result<(), DeviceError> {
        self.put_off(Call::Import { tensor: *tensor, window: *window, region })
    }

    fn export(
        &mut self,
        window: &Buffer,
        tensor: &DeviceTensor<T>,
        region: Region<2>,
    ) -> Result<(), DeviceError> {
        self.put_off(Call::Export { window: *window, tensor: *tensor, region })
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn wait(&mut self) -> Result<(), DeviceError> {
        self.flush()?;
        assert!(self.came.is_empty(), "{} regions were fetched and not taken", self.came.len());
        self.queue.wait()
    }
}

/// How a region of a window lies by itself.
fn compact(of: &Layout, region: Region<2>) -> Layout {
    let rows = usize::try_from(region.rows().len()).expect("intervals have no negative length");
    Layout::new(of.batch(), of.channels(), of.block(), region, rows).expect("a part of a window is no larger")
}

/// Memory of a window in which nothing is.
fn nothing<T: Element>(layout: &Layout) -> Vec<T> {
    vec![T::from_f64(f64::NAN); layout.len()]
}
