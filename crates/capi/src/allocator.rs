//! Memory from the caller: every large block of the library can come from functions of the caller.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use tiled::tensor::may_refuse;

use crate::guard::guard;
use crate::pointer::{Extensible, extensible, write_extensible};
use crate::status::{Failure, tiled_status};

/// Where the library's large blocks come from: windows, stores, parameters, staging, everything of 64 KiB and more.
///
/// Smaller blocks come from the system, so that a slow allocator (pinned memory, a framework's arena) is asked rarely. The same
/// goes for what a refusal could not be told from: see `allocate`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_allocator {
    /// The size of the struct, as `tiled_allocator_init` sets it.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Gives `size` bytes at an address that is a multiple of `alignment`, a power of two, or NULL where there are
    /// none; the call then fails with `TILED_STATUS_OUT_OF_MEMORY`, with nothing lost and every handle as usable as
    /// before. A large text that explains a plan and is refused comes from the system, and the call goes on. Any thread,
    /// several at once; must not call the library.
    pub allocate:
        Option<unsafe extern "C" fn(user: *mut c_void, size: usize, alignment: usize) -> *mut c_void>,
    /// Takes a block back, with the size and alignment that it was asked for. Any thread, several at once.
    pub deallocate:
        Option<unsafe extern "C" fn(user: *mut c_void, block: *mut c_void, size: usize, alignment: usize)>,
    /// Given back to both.
    pub user: *mut c_void,
}

// SAFETY: repr(C), the size first, and integers, pointers and optional function pointers, which take any bits that C
// can put there
unsafe impl Extensible for tiled_allocator {
    const NAME: &'static str = "tiled_allocator";
    const FIRST_SIZE: usize = size_of::<Self>();

    fn initial() -> Self {
        Self {
            struct_size: crate::size_of_u32::<Self>(),
            reserved: 0,
            allocate: None,
            deallocate: None,
            user: null_mut(),
        }
    }
}

/// Sets every field to its default: no functions. `struct_size` is `sizeof(tiled_allocator)`.
///
/// # Safety
/// `allocator` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_allocator_init(
    allocator: *mut tiled_allocator,
    struct_size: u32,
) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { write_extensible(allocator, struct_size, "allocator", &tiled_allocator::initial()) })
}

/// Takes large blocks from functions of the caller from now on; NULL, the default, takes them from the system.
///
/// The struct is copied. A block goes back to the allocator that it came from, so `user` and the functions must live
/// until everything made meanwhile is freed. On failure (one function without the other) nothing changes.
/// Threads: any.
///
/// # Safety
/// `allocator` is NULL or a struct with its size set, whose functions keep their promises.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_allocator_set(allocator: *const tiled_allocator) -> tiled_status {
    guard(|| {
        let mut chosen = null_mut();
        if !allocator.is_null() {
            // SAFETY: the caller's promise
            let allocator = unsafe { extensible(allocator, "allocator")? };
            if allocator.allocate.is_none() || allocator.deallocate.is_none() {
                return Err(Failure::invalid("allocator: both functions are wanted"));
            }
            chosen = std::ptr::from_ref(known(allocator)).cast_mut();
        }
        CURRENT.store(chosen, Ordering::Release);
        Ok(())
    })
}

/// The allocator as one that lives as long as the program: a thread may have just read it, and blocks refer to it. One that
/// was set before is taken again, so that setting two by turns takes no more memory each time.
fn known(allocator: tiled_allocator) -> &'static tiled_allocator {
    static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());
    let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let parts = |known: &tiled_allocator| {
        let functions = (known.allocate.map(|f| f as usize), known.deallocate.map(|f| f as usize));
        (functions, known.user)
    };
    if let Some(Known(same)) = all.iter().find(|Known(known)| parts(known) == parts(&allocator)) {
        return same;
    }
    let made: &'static tiled_allocator = Box::leak(Box::new(allocator));
    all.push(Known(made));
    made
}

struct Known(&'static tiled_allocator);

// SAFETY: the functions and `user` may be used from any thread, by the promise of `tiled_allocator_set`
unsafe impl Send for Known {}

static CURRENT: AtomicPtr<tiled_allocator> = AtomicPtr::new(null_mut());

#[global_allocator]
static BLOCKS: Blocks = Blocks;

/// Small blocks from the system; large ones with a header that says where they came from.
struct Blocks;

/// What stands in front of a large block: the allocator that it came from, NULL for the system.
type Header = *const tiled_allocator;

const LARGE_BYTES: usize = 64 << 10;

/// The layout of a large block with its header, and the bytes in front of the block.
fn with_header(layout: Layout) -> Option<(Layout, usize)> {
    Layout::new::<Header>().extend(layout).ok().map(|(whole, offset)| (whole.pad_to_align(), offset))
}

// SAFETY: small blocks are the system's. A large block lies `offset` bytes into a block of `with_header(layout)`, so it
// has the size and alignment of `layout`; the header in front of it is found again from the same layout. Whether a
// block is large depends on its layout alone, which the caller of `dealloc` must give again.
unsafe impl GlobalAlloc for Blocks {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() < LARGE_BYTES {
            // SAFETY: the caller's promise
            return unsafe { System.alloc(layout) };
        }
        let Some((whole, offset)) = with_header(layout) else { return null_mut() };
        let mut from: Header = CURRENT.load(Ordering::Acquire);
        // SAFETY: `from` is NULL or a struct that is never freed; sizes are not zero
        let mut block = unsafe {
            match from.as_ref().and_then(|from| Some((from.allocate?, from.user))) {
                Some((allocate, user)) => allocate(user, whole.size(), whole.align()).cast::<u8>(),
                None => System.alloc(whole),
            }
        };
        if block.is_null() && !from.is_null() && !may_refuse() {
            // whoever asks would end the process
            from = null_mut();
            // SAFETY: sizes are not zero
            block = unsafe { System.alloc(whole) };
        }
        if block.is_null() {
            return block;
        }
        // SAFETY: the block has `offset` bytes and a block of `layout` after them; the header fits in front
        unsafe {
            let inner = block.add(offset);
            inner.cast::<Header>().sub(1).write_unaligned(from);
            inner
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.size() < LARGE_BYTES {
            // SAFETY: the caller's promise; small blocks are the system's
            return unsafe { System.dealloc(block, layout) };
        }
        let Some((whole, offset)) = with_header(layout) else { return };
        // SAFETY: `alloc` made it with the same layout, so that the header and the whole block lie where it put them
        unsafe {
            let from = block.cast::<Header>().sub(1).read_unaligned();
            let outer = block.sub(offset);
            match from.as_ref().and_then(|from| Some((from.deallocate?, from.user))) {
                Some((deallocate, user)) => deallocate(user, outer.cast(), whole.size(), whole.align()),
                None => System.dealloc(outer, whole),
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() < LARGE_BYTES {
            // SAFETY: the caller's promise
            return unsafe { System.alloc_zeroed(layout) };
        }
        let from: Header = CURRENT.load(Ordering::Acquire);
        if from.is_null() {
            let Some((whole, offset)) = with_header(layout) else { return null_mut() };
            // SAFETY: the size is not zero; a header of zeros says that the block is the system's
            let block = unsafe { System.alloc_zeroed(whole) };
            // SAFETY: the block has `offset` bytes and a block of `layout` after them
            return if block.is_null() { block } else { unsafe { block.add(offset) } };
        }
        // SAFETY: the caller's promise
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block has `layout.size()` bytes
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.size() < LARGE_BYTES && size < LARGE_BYTES {
            // SAFETY: the caller's promise; both are the system's
            return unsafe { System.realloc(block, layout, size) };
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return null_mut() };
        // SAFETY: the caller's promise; the new block is another one and both have the bytes that are copied
        unsafe {
            let made = self.alloc(wanted);
            if !made.is_null() {
                std::ptr::copy_nonoverlapping(block, made, layout.size().min(size));
                self.dealloc(block, layout);
            }
            made
        }
    }
}
