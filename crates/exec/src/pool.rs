//! Threads that end before what they work for is gone.

use std::num::NonZero;
use std::ops::Deref;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use tiled_kernel::ThreadsAwake;

/// A pool of threads that have ended when its drop returns, and with them their stacks and what is kept on them. Where one of its own threads drops it, they end soon after.
///
/// The pool of `rayon` alone tells its threads to end and does not wait until they have: their memory would come back some time
/// later.
#[derive(Debug)]
pub struct Pool {
    /// `None` in the drop alone.
    pool: Option<ThreadPool>,
    threads: Vec<JoinHandle<()>>,
    /// The process that has the threads.
    process: u32,
}

impl Pool {
    /// A pool of so many threads, one at least.
    ///
    /// # Errors
    /// Where the system does not start them.
    pub fn new(threads: usize) -> Result<Self, ThreadPoolBuildError> {
        let mut pool = Self { pool: None, threads: Vec::new(), process: process::id() };
        // where one does not start, those before it are told to end, and the drop waits for them
        let started = ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .thread_name(|index| format!("tiled-{index}"))
            .spawn_handler(|work| {
                let mut builder = thread::Builder::new();
                if let Some(name) = work.name() {
                    builder = builder.name(name.to_owned());
                }
                pool.threads.push(builder.spawn(|| work.run())?);
                Ok(())
            })
            .build()?;
        pool.pool = Some(started);
        Ok(pool)
    }
}

impl Deref for Pool {
    type Target = ThreadPool;

    fn deref(&self) -> &ThreadPool {
        self.pool.as_ref().expect("invariant: only the drop takes it")
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.process != process::id() {
            // a fork has none of the threads: nobody would ever hear, nor end
            std::mem::forget((self.pool.take(), std::mem::take(&mut self.threads)));
            return;
        }
        let current = thread::current().id();
        let is_own = self.threads.iter().any(|thread| thread.thread().id() == current);
        drop(self.pool.take()); // tells them to end when they have done what they were asked
        if is_own {
            return; // this is what one of them was asked, so that none ends before it returns
        }
        for thread in self.threads.drain(..) {
            // a panic has been told already, by the call that it happened in
            let _ = thread.join();
        }
    }
}

/// How often a thread without work looks again at once, about a millisecond, and how long it waits from then on.
const SPINS: u32 = 2000;
const NAP: Duration = Duration::from_micros(50);

impl Pool {
    /// Runs work on the threads of the pool, and keeps those awake that wait for a part of it: to wake one takes as long as many a call.
    pub fn install_awake<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.install(|| with_threads_awake(work))
    }
}

/// Runs `work`, whose calls the threads of this pool share, and keeps them from falling asleep between two calls, unless somebody does so.
pub(crate) fn with_threads_awake<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    static CORES: OnceLock<usize> = OnceLock::new();
    let others = rayon::current_num_threads() - 1;
    if others == 0
        || ThreadsAwake::is_so()
        || others >= *CORES.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
    {
        return work();
    }
    let is_done = AtomicBool::new(false);
    rayon::in_place_scope(|scope| {
        let _done = Done(&is_done); // also where `work` panics, or the scope would wait for ever
        let _awake = ThreadsAwake::new();
        for _ in 0..others {
            scope.spawn(|_| {
                let mut idle = 0;
                while !is_done.load(Ordering::Acquire) {
                    idle = if rayon::yield_now() == Some(rayon::Yield::Executed) { 0 } else { idle + 1 };
                    if idle > SPINS {
                        thread::sleep(NAP); // a slow source: there will be nothing to do for a while
                    } else if idle > 0 {
                        thread::yield_now();
                    }
                }
            });
        }
        work()
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;

    use super::*;

    thread_local! {
        static KEPT: RefCell<Option<Arc<()>>> = const { RefCell::new(None) };
    }

    #[test]
    fn r05_what_threads_keep_is_gone_when_the_drop_returns() {
        for threads in 1..=4 {
            for _ in 0..20 {
                let kept = Arc::new(());
                let pool = Pool::new(threads).unwrap();
                assert_eq!(pool.current_num_threads(), threads);
                pool.broadcast(|_| KEPT.set(Some(Arc::clone(&kept))));
                assert_eq!(Arc::strong_count(&kept), 1 + threads);
                drop(pool);
                assert_eq!(Arc::strong_count(&kept), 1, "{threads} threads");
            }
        }
    }

    #[test]
    fn r05_a_pool_that_one_of_its_own_threads_drops_ends() {
        let pool = Arc::new(Pool::new(2).unwrap());
        let own = Arc::clone(&pool);
        let (sender, receiver) = std::sync::mpsc::channel();
        pool.spawn(move || {
            // the last owner, whichever thread that turns out to be
            drop(own);
            sender.send(()).unwrap();
        });
        drop(pool);
        receiver.recv().unwrap();
    }

    #[test]
    fn no_thread_is_one() {
        assert_eq!(Pool::new(0).unwrap().current_num_threads(), 1);
    }
}
