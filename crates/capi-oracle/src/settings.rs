//! Structs set to their defaults, descriptions of memory, DLPack, and what holds for the whole process.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use tiled_capi::*;

use super::State;
use super::header::{Extensible, size_of_u32};

impl State<'_> {
    /// Any `_init`, with the size of the struct, a smaller or a larger one.
    pub(super) fn initialise(&mut self) {
        let which = usize::from(self.bytes.byte()) % INITS.len();
        let (init, least) = INITS[which];
        let mut words = [0x5555_5555_5555_5555_u64; 32];
        let size = match self.bytes.below(4) {
            0 => usize::from(self.bytes.byte()),
            1 => self.bytes.choose(&[0, 4, 4096 + 8, u32::MAX as usize]),
            _ => least,
        };
        let is_told = size < least || size > 4096;
        self.flaws.is_wrong = is_told;
        let place = if self.bytes.once_in(24) { self.null() } else { words.as_mut_ptr().cast::<c_void>() };
        let narrow = u32::try_from(size).unwrap_or(u32::MAX);
        let status = self.judged(|| init(place, narrow));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let written = if status == TILED_STATUS_OK { size } else { 0 };
        assert!(bytes[written..].iter().all(|byte| *byte == 0x55), "bytes past {written} were written");
        assert!(written == 0 || bytes[..4] == narrow.to_ne_bytes(), "the size of struct {which}");
    }

    pub(super) fn describe_tensor(&mut self) {
        let bytes = &mut self.bytes;
        let mut shape = [bytes.from(1, 2), bytes.from(1, 3), bytes.from(1, 9), bytes.from(1, 9)];
        if bytes.once_in(8) {
            shape[usize::from(bytes.below(4))] = bytes.choose(&[0, -1, i64::MIN, i64::MAX, 1 << 40, 1 << 60]);
        }
        let mut data = self.arena.readable();
        if self.bytes.once_in(24) {
            data = self.null();
        }
        let dtype = self.dtype();
        let size = size_of_u32::<tiled_tensor>();
        let mut tensor: tiled_tensor = Extensible::initial();
        // SAFETY: there is room for the struct
        let status = self.judged(|| unsafe {
            tiled_tensor_contiguous(dtype, data, shape.as_ptr(), &raw mut tensor, size)
        });
        assert_eq!(status == TILED_STATUS_OK, tensor.shape == shape, "{tensor:?} with status {status}");
        if status == TILED_STATUS_OK {
            self.offer(&tensor);
        }
    }

    /// Offers a tensor by DLPack, in both structs, and takes it back.
    fn offer(&mut self, tensor: &tiled_tensor) {
        let released = AtomicUsize::new(0);
        let user = std::ptr::from_ref(&released).cast_mut().cast();
        let mut versioned: *mut DLManagedTensorVersioned = std::ptr::null_mut();
        let mut older: *mut DLManagedTensor = std::ptr::null_mut();
        // SAFETY: the tensor and the places are live
        let offered = unsafe {
            [
                self.judged(|| {
                    tiled_tensor_to_dlpack_versioned(tensor, Some(release), user, &raw mut versioned)
                }),
                self.judged(|| tiled_tensor_to_dlpack(tensor, Some(release), user, &raw mut older)),
            ]
        };
        assert_eq!(offered, [TILED_STATUS_OK; 2], "{tensor:?} cannot be offered");
        let mut back: [tiled_tensor; 2] = [Extensible::initial(); 2];
        let size = size_of_u32::<tiled_tensor>();
        let [first, second] = back.each_mut().map(std::ptr::from_mut);
        // SAFETY: what was offered is live, and so are the places
        let taken = unsafe {
            [
                self.judged(|| tiled_tensor_from_dlpack_versioned(versioned, first, size)),
                self.judged(|| tiled_tensor_from_dlpack(older, second, size)),
            ]
        };
        assert_eq!(taken, [TILED_STATUS_OK; 2], "{tensor:?} cannot be taken back");
        for back in back {
            let same = (back.dtype, back.data, back.shape, back.strides);
            assert_eq!(
                same,
                (tensor.dtype, tensor.data, tensor.shape, tensor.strides),
                "another tensor came back"
            );
        }
        type Deleter = unsafe extern "C" fn(*mut c_void);
        // SAFETY: dlpack.h has the deleter at byte 16, behind version and context, and before version 1 at byte 56, behind
        // tensor and context; each is called once
        unsafe {
            (*versioned.cast::<u8>().add(16).cast::<Deleter>())(versioned.cast());
            (*older.cast::<u8>().add(56).cast::<Deleter>())(older.cast());
        }
        assert_eq!(released.load(Ordering::SeqCst), 2, "the memory was released");
    }

    pub(super) fn set_logger_or_allocator(&mut self) {
        if self.bytes.either() {
            let mut logger = tiled_logger { log: Some(log), ..Extensible::initial() };
            logger.level = self.bytes.choose(&[TILED_LOG_ERROR, TILED_LOG_INFO, 0, 3]);
            self.flaws.is_wrong = ![TILED_LOG_ERROR, TILED_LOG_INFO].contains(&logger.level);
            // SAFETY: the logger is live, and so is its function
            self.judged(|| unsafe { tiled_logger_set(&raw const logger) });
            return;
        }
        let mut allocator = tiled_allocator {
            allocate: Some(allocate),
            deallocate: Some(deallocate),
            ..Extensible::initial()
        };
        match self.bytes.below(4) {
            0 => allocator.allocate = None,
            1 => allocator.deallocate = None,
            _ => {}
        }
        self.flaws.is_wrong = allocator.allocate.is_none() != allocator.deallocate.is_none();
        // SAFETY: the allocator is live, and its functions keep their promises
        self.judged(|| unsafe { tiled_allocator_set(&raw const allocator) });
    }

    /// Sets the logger and the allocator back to none.
    pub(super) fn restore_settings(&mut self) {
        // SAFETY: NULL is no logger, no allocator
        self.judged(|| unsafe { tiled_logger_set(std::ptr::null()) });
        // SAFETY: as above
        self.judged(|| unsafe { tiled_allocator_set(std::ptr::null()) });
        self.calls -= 2;
    }
}

unsafe extern "C" fn release(user: *mut c_void) {
    // SAFETY: it points to a counter that lives until the deleter has returned
    unsafe { &*user.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn log(_user: *mut c_void, _level: i32, message: *const c_char) {
    // SAFETY: the message is ended by a NUL
    let text = unsafe { std::ffi::CStr::from_ptr(message) };
    std::hint::black_box(text.to_bytes().len());
}

/// Gives memory of the C library, with its size and alignment in front.
unsafe extern "C" fn allocate(_user: *mut c_void, size: usize, alignment: usize) -> *mut c_void {
    let Ok(layout) = std::alloc::Layout::from_size_align(size, alignment) else {
        return std::ptr::null_mut();
    };
    if size > MOST_BYTES {
        return std::ptr::null_mut();
    }
    // SAFETY: the size is not zero, and the system's allocator is not the library's
    unsafe { std::alloc::GlobalAlloc::alloc(&std::alloc::System, layout).cast() }
}

unsafe extern "C" fn deallocate(_user: *mut c_void, block: *mut c_void, size: usize, alignment: usize) {
    if let Ok(layout) = std::alloc::Layout::from_size_align(size, alignment) {
        // SAFETY: the block came from `allocate` with this size and alignment
        unsafe { std::alloc::GlobalAlloc::dealloc(&std::alloc::System, block.cast(), layout) }
    }
}

/// What the allocator of the oracle gives at most; larger blocks are refused.
const MOST_BYTES: usize = 64 << 20;

type Init = fn(*mut c_void, u32) -> tiled_status;

macro_rules! inits {
    ($($name:ident $type:ident),* $(,)?) => {
        // SAFETY: the place is NULL or has room for as many bytes as the library takes for a size
        [$((|place, size| unsafe { $name(place.cast(), size) }, <$type as Extensible>::FIRST_SIZE)),*]
    };
}

const INITS: [(Init, usize); 15] = inits![
    tiled_logger_init tiled_logger, tiled_allocator_init tiled_allocator,
    tiled_engine_options_init tiled_engine_options, tiled_operator_options_init tiled_operator_options,
    tiled_conv2d_init tiled_conv2d, tiled_pool2d_init tiled_pool2d, tiled_objective_init tiled_objective,
    tiled_plan_options_init tiled_plan_options, tiled_tensor_init tiled_tensor, tiled_source_init tiled_source,
    tiled_changes_init tiled_changes, tiled_sink_init tiled_sink, tiled_progress_init tiled_progress, tiled_io_init tiled_io,
    tiled_optimizer_init tiled_optimizer,
];
