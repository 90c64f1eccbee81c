//! What an operation takes that is not its operands: kernels, threads, memory, random numbers.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tiled_exec::Pool;
use tiled_graph::Rng;
use tiled_kernel::Backend;
use tiled_kernel::dense::Dense;
use tiled_tensor::Element;

use crate::buffers::Buffers;
use crate::error::{Result, TapeError};
use crate::network::calls::Calls;

/// Kernels for windows of images and for dense work.
pub trait Kernels<T: Element>: Backend<T> + Dense<T> {}

impl<T: Element, K: Backend<T> + Dense<T>> Kernels<T> for K {}

/// The kernels, threads, buffers and random numbers that tensors share. A clone is the same context.
///
/// ```
/// use tiled_autograd::Context;
/// use tiled_kernel::Reference;
/// let context = Context::<f64>::new(&Reference, 1)?;
/// let x = context.from_slice(&[2, 2], &[1.0, 2.0, 3.0, 4.0])?.with_gradient()?;
/// let y = (&x * &x)?.sum(&[], false)?;
/// y.backward()?;
/// assert_eq!(x.grad().expect("it needs one").to_vec(), [2.0, 4.0, 6.0, 8.0]);
/// # Ok::<(), tiled_autograd::TapeError>(())
/// ```
#[derive(Debug)]
pub struct Context<T: Element>(Arc<Inner<T>>);

#[derive(Debug)]
struct Inner<T: Element> {
    kernels: &'static dyn Kernels<T>,
    pool: Arc<Pool>,
    buffers: Buffers<T>,
    generator: Mutex<Rng>,
    /// The seed of masks of dropout, and how many were drawn.
    masks_seed: AtomicU64,
    masks: AtomicU64,
    /// The number of the next node.
    nodes: AtomicU64,
    calls: Mutex<Calls<T>>,
}

impl<T: Element> Clone for Context<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Element> Context<T> {
    /// A context with its own pool of `threads` threads and the seed zero.
    ///
    /// # Errors
    /// Where the threads cannot be started.
    pub fn new(kernels: &'static dyn Kernels<T>, threads: usize) -> Result<Self> {
        let pool =
            Pool::new(threads).map_err(|error| TapeError::Threads { threads, reason: error.to_string() })?;
        Ok(Self::with_pool(kernels, Arc::new(pool)))
    }

    /// The same with threads that others use too.
    #[must_use]
    pub fn with_pool(kernels: &'static dyn Kernels<T>, pool: Arc<Pool>) -> Self {
        Self(Arc::new(Inner {
            kernels,
            pool,
            buffers: Buffers::new(),
            generator: Mutex::new(Rng::new(0)),
            masks_seed: AtomicU64::new(0),
            masks: AtomicU64::new(0),
            nodes: AtomicU64::new(1),
            calls: Mutex::new(Calls::new()),
        }))
    }

    /// The bytes of the tensors that are alive, and of what the tape holds for backward.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.0.buffers.live_bytes()
    }

    /// The bytes of buffers that are kept for the next tensors: never more than [`Context::peak_bytes`] less what is live, or 8 MiB less that.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.0.buffers.kept_bytes()
    }

    /// The most bytes that were ever live.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.0.buffers.peak_bytes()
    }

    /// Begins the peak anew, from what is live now, and gives back what is kept.
    pub fn reset_peak(&self) {
        self.0.buffers.reset_peak();
    }

    /// The most bytes that may be live.
    #[must_use]
    pub fn limit_bytes(&self) -> Option<u64> {
        self.0.buffers.limit_bytes()
    }

    /// Sets the most bytes that may be live. An operation that would pass it is an error that names its operator.
    pub fn set_limit_bytes(&self, limit: Option<u64>) {
        self.0.buffers.set_limit(limit);
    }

    /// Gives buffers and plans that are kept for the next operations back to the system.
    pub fn clear(&self) {
        self.0.buffers.clear();
        self.calls().clear();
    }

    /// Begins the random numbers anew.
    pub fn seed(&self, seed: u64) {
        *self.generator() = Rng::new(seed);
        self.0.masks_seed.store(seed, Ordering::Release);
        self.0.masks.store(0, Ordering::Release);
    }

    /// The state of the random numbers: the generator's, then the seed of masks of dropout and how many were drawn.
    #[must_use]
    pub fn generator_state(&self) -> [u64; 6] {
        let [a, b, c, d] = self.generator().state();
        [a, b, c, d, self.masks_seed(), self.0.masks.load(Ordering::Acquire)]
    }

    /// Goes on from a state.
    pub fn set_generator_state(&self, [a, b, c, d, seed, masks]: [u64; 6]) {
        *self.generator() = Rng::from_state([a, b, c, d]);
        self.0.masks_seed.store(seed, Ordering::Release);
        self.0.masks.store(masks, Ordering::Release);
    }

    /// Runs work on the threads of the context, which wait awake for their part of each operation: a step of training as a whole then wakes
    /// them once. Where [`no_grad`] holds for the caller it holds for the work.
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let is_recorded = records_gradients();
        self.0.pool.install_awake(move || {
            let _guard = (!is_recorded).then(no_grad);
            work()
        })
    }

    /// The same where there is enough to do for it.
    pub(crate) fn share<R: Send>(&self, elements: usize, work: impl FnOnce() -> R + Send) -> R {
        if elements >= WORTH_SHARING && self.0.pool.current_thread_index().is_none() {
            self.0.pool.install(work)
        } else {
            work()
        }
    }

    /// The indices 0 to n − 1 in a random order (Fisher and Yates).
    #[must_use]
    pub fn permutation(&self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        let mut generator = self.generator();
        for last in (1..n).rev() {
            let bound = last as u64 + 1;
            // what would make some numbers likelier than others is drawn again
            let most = u64::MAX - u64::MAX % bound;
            let drawn = std::iter::repeat_with(|| generator.next_u64()).find(|drawn| *drawn < most);
            let other = usize::try_from(drawn.unwrap_or(0) % bound).unwrap_or(0);
            order.swap(last, other);
        }
        order
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn dense(&self) -> &'static dyn Dense<T> {
        self.0.kernels
    }

    pub(crate) fn backend(&self) -> &'static dyn Backend<T> {
        self.0.kernels
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.0.pool
    }

    pub(crate) fn buffers(&self) -> &Buffers<T> {
        &self.0.buffers
    }

    pub(crate) fn calls(&self) -> MutexGuard<'_, Calls<T>> {
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn masks_seed(&self) -> u64 {
        self.0.masks_seed.load(Ordering::Acquire)
    }

    /// The number of a mask of dropout, another for each.
    pub(crate) fn next_mask(&self) -> u64 {
        self.0.masks.fetch_add(1, Ordering::AcqRel)
    }

    /// The number of a node, larger than those of all nodes before it.
    pub(crate) fn next_node(&self) -> u64 {
        self.0.nodes.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn generator(&self) -> MutexGuard<'_, Rng> {
        self.0.generator.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Elements of work that are worth waking a thread for, about.
const WORTH_SHARING: usize = 1 << 16;

thread_local! {
    static WITHOUT_GRADIENTS: Cell<usize> = const { Cell::new(0) };
}

/// While it lives, this thread records no operations.
///
/// ```
/// use tiled_autograd::{Context, no_grad};
/// use tiled_kernel::Reference;
/// let context = Context::<f32>::new(&Reference, 1)?;
/// let x = context.ones(&[3])?.with_gradient()?;
/// let _guard = no_grad();
/// assert!(!(&x + &x)?.requires_grad());
/// # Ok::<(), tiled_autograd::TapeError>(())
/// ```
#[derive(Debug)]
#[must_use = "operations are recorded again when it is dropped"]
pub struct NoGrad(PhantomData<*const ()>);

/// Stops the recording of operations on this thread; may be nested.
pub fn no_grad() -> NoGrad {
    WITHOUT_GRADIENTS.set(WITHOUT_GRADIENTS.get() + 1);
    NoGrad(PhantomData)
}

impl Drop for NoGrad {
    fn drop(&mut self) {
        WITHOUT_GRADIENTS.set(WITHOUT_GRADIENTS.get() - 1);
    }
}

/// Whether this thread records operations.
#[must_use]
pub fn records_gradients() -> bool {
    WITHOUT_GRADIENTS.get() == 0
}
