//! Parts of data in a random order.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use ndarray::{ArrayD, Axis};
use tiled_tensor::Element;

use crate::context::Context;

/// Examples and targets in batches of random order; the next batch is put together on a thread of its own while one is worked on.
///
/// ```
/// use ndarray::Array;
/// use tiled_autograd::{Context, train::Batches};
/// use tiled_kernel::Reference;
/// let context = Context::<f32>::new(&Reference, 1)?;
/// let x = Array::from_shape_fn((10, 2), |(row, _)| row as f32).into_dyn();
/// let targets = Array::from_shape_fn(10, |row| row as i64).into_dyn();
/// let batches: Vec<_> = Batches::new(&context, x, targets, 4).collect();
/// assert_eq!(batches.iter().map(|(x, _)| x.shape()[0]).collect::<Vec<_>>(), [4, 4, 2]);
/// # Ok::<(), tiled_autograd::TapeError>(())
/// ```
#[derive(Debug)]
pub struct Batches<T: Element, Y> {
    receiver: Receiver<(ArrayD<T>, ArrayD<Y>)>,
}

impl<T: Element, Y: Clone + Send + 'static> Batches<T, Y> {
    /// All examples once, in an order that the context draws; both arrays have examples on their first axis, and as many as the shorter
    /// one are taken.
    #[must_use]
    pub fn new(context: &Context<T>, x: ArrayD<T>, targets: ArrayD<Y>, batch: usize) -> Self {
        let rows = |shape: &[usize]| shape.first().copied().unwrap_or(0);
        let order = context.permutation(rows(x.shape()).min(rows(targets.shape())));
        let (sender, receiver) = sync_channel(1);
        // it ends when the last batch is taken, or nobody takes any more
        thread::spawn(move || {
            for part in order.chunks(batch.max(1)) {
                let pair = (x.select(Axis(0), part), targets.select(Axis(0), part));
                if sender.send(pair).is_err() {
                    return;
                }
            }
        });
        Self { receiver }
    }
}

impl<T: Element, Y> Iterator for Batches<T, Y> {
    type Item = (ArrayD<T>, ArrayD<Y>);

    fn next(&mut self) -> Option<Self::Item> {
        self.receiver.recv().ok()
    }
}
