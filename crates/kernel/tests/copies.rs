//! Tensors that are kept between sweeps: one queue shares their copies among threads, several copy on their own thread.

use std::sync::atomic::{AtomicUsize, Ordering};

use tiled_geometry::{Interval, Region};
use tiled_kernel::{
    Backend, Buffer, Host, Needs, Place, Reference, StoreNeeds, SweepNeeds, copy_region, forward,
};
use tiled_tensor::{Layout, View, ViewMut};

/// Counts the copies that a backend may share among threads.
#[derive(Debug, Default)]
struct Counting {
    copies: AtomicUsize,
}

impl Backend<f32> for Counting {
    forward!(f32, |_counting| &Reference; name block support seconds transfers_beside workers open_own);
}

impl Host<f32> for Counting {
    forward!(f32, |_counting| &Reference; pack compute compute_part reduce unpack);

    fn copy(&self, from: &View<'_, f32>, mut to: ViewMut<'_, f32>, region: Region<2>) {
        self.copies.fetch_add(1, Ordering::Relaxed);
        copy_region(from, &mut to, region);
    }
}

const EXTENTS: [i64; 2] = [7, 5];

/// The copies of the backend where so many queues save a region, and what the store holds afterwards.
fn copies(queues: usize) -> (usize, Vec<f32>) {
    let host = Counting::default();
    let layout = Layout::new(2, 3, 1, Region::whole(EXTENTS), 7).expect("small");
    let needs = Needs {
        nodes: &[],
        reductions: &[],
        stores: &[Some(StoreNeeds { name: "kept", layout, slot: 0 })],
        lanes: queues,
        queues,
        window_elements: queues * layout.len(),
        threads: 1,
        workspace_bytes: 0,
    };
    let mut context = host.open(&needs).expect("a small run");
    let sweep = SweepNeeds { queues, slots: &[layout.len()], vectors: &[], adopted: &[] };
    let window = Buffer { place: Place::Slot(0), layout };
    let region = Region::from_rows_cols(Interval::new(2, 6), Interval::new(1, 5));
    {
        let mut queues = context.queues(&sweep).expect("room for a small window");
        let queue = &mut queues[0];
        queue.stage(&window, Region::whole(EXTENTS)).expect("the host's memory").into_data().fill(2.0);
        queue.save(&window, 0, region).expect("the host's memory");
    }
    let count = host.copies.load(Ordering::Relaxed);
    let mut queues = context.queues(&sweep).expect("room for a small window");
    let queue = &mut queues[0];
    queue.load(0, &window, region).expect("the host's memory");
    let ticket = queue.fetch(&window, region).expect("the host's memory");
    let view = queue.take(ticket).expect("the host's memory");
    let mut values = Vec::new();
    for (n, c) in [(0, 0), (0, 2), (1, 1)] {
        for y in region.rows().begin()..region.rows().end() {
            values.extend((region.cols().begin()..region.cols().end()).map(|x| view.get(n, c, y, x)));
        }
    }
    (count, values)
}

#[test]
fn several_queues_save_on_their_own_thread() {
    assert_eq!(copies(1), (1, vec![2.0; 48]), "one queue asks the backend");
    assert_eq!(copies(2), (0, vec![2.0; 48]), "a thread that waited could begin with the other queue");
}
