//! Parts of data in an order, each prepared while the one before it is worked on.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

use ndarray::ArrayD;
use tiled_exec::ArrayValue;

use super::examples::{OPERATOR, Rows};
use crate::error::{Result, TapeError};

/// Examples and targets in batches; the next one is put together on a thread of its own while one is worked on. See
/// [`Examples`](super::Examples).
#[derive(Debug)]
pub struct Batches<X, Y> {
    /// `None` when it is being dropped.
    receiver: Option<Receiver<Batch<X, Y>>>,
    thread: Option<JoinHandle<()>>,
}

type Batch<X, Y> = Result<(ArrayD<X>, ArrayD<Y>)>;

impl<X: ArrayValue, Y: ArrayValue> Batches<X, Y> {
    pub(super) fn new(rows: Arc<(Rows<X>, Rows<Y>)>, order: Vec<usize>, size: usize) -> Result<Self> {
        if size == 0 {
            let (operator, attribute, expected) = (OPERATOR, "the size", "a number above 0");
            return Err(TapeError::Attribute { operator, attribute, expected, got: 0.0 });
        }
        // without a place of its own: the batch that waits is in the hands of the thread, so that there is one and not two
        let (sender, receiver) = sync_channel(0);
        let work = move || {
            for part in order.chunks(size) {
                let batch = rows.0.read(part).and_then(|x| Ok((x, rows.1.read(part)?)));
                let is_last = batch.is_err();
                // nobody takes any more where sending fails
                if sender.send(batch).is_err() || is_last {
                    return;
                }
            }
        };
        let started = thread::Builder::new().name("batches".to_owned()).spawn(work);
        let thread = started.map_err(|error| TapeError::Threads { threads: 1, reason: error.to_string() })?;
        Ok(Self { receiver: Some(receiver), thread: Some(thread) })
    }
}

impl<X, Y> Iterator for Batches<X, Y> {
    type Item = Batch<X, Y>;

    /// The next batch; after an error there is none. Where a function of rows has panicked, so does this.
    fn next(&mut self) -> Option<Self::Item> {
        if let Ok(batch) = self.receiver.as_ref()?.recv() {
            return Some(batch);
        }
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
        None
    }
}

impl<X, Y> Drop for Batches<X, Y> {
    /// Waits for the batch that is being put together, so that no file stays open behind the caller's back.
    fn drop(&mut self) {
        self.receiver = None;
        if let Some(thread) = self.thread.take() {
            // a panic was told when it happened, and nobody wants its batch
            let _ = thread.join();
        }
    }
}
