//! What the caller knows: which handles it holds, of which kind, freed or not, and what they were made for.

use tiled_capi::{tiled_objective, tiled_status};

use super::State;
use super::header::Opaque;

/// A handle that was given out.
#[derive(Clone, Debug)]
pub(super) struct Shadow {
    pub(super) address: usize,
    pub(super) kind: usize,
    pub(super) is_freed: bool,
    /// Of plans, executors and trainers.
    pub(super) planned: Option<Planned>,
}

/// What a run takes and gives.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) dtype: i32,
    pub(super) inputs: Vec<[i64; 4]>,
    pub(super) outputs: Vec<[i64; 4]>,
    pub(super) objective: tiled_objective,
}

/// What is known to be wrong with the arguments of the next call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flaws {
    /// A pointer is NULL that must not be.
    pub(super) is_null: bool,
    /// A handle is freed, of another kind, or none.
    pub(super) is_no_handle: bool,
    /// Something else that the library must tell.
    pub(super) is_wrong: bool,
}

impl Flaws {
    pub(super) const fn any(self) -> bool {
        self.is_null || self.is_no_handle || self.is_wrong
    }
}

impl State<'_> {
    /// The latest handle of this kind most of the time, else another one, a bad one or NULL.
    pub(super) fn handle<H: Opaque>(&mut self) -> *mut H {
        let latest = |shadow: &&Shadow| shadow.kind == H::KIND && !shadow.is_freed;
        let mut address = self.handles.iter().rev().find(latest).map(|shadow| shadow.address);
        match self.bytes.below(24) {
            20 | 21 => {
                let place = usize::from(self.bytes.byte()) % self.handles.len().max(1);
                address = self.handles.get(place).map(|shadow| shadow.address);
            }
            22 => address = Some(self.bytes.choose(&[0x1234, usize::MAX, 8, 1 << 63, H::KIND])),
            23 => address = None,
            _ => {}
        }
        let address = address.unwrap_or(0);
        let is_good = self.handles.iter().any(|shadow| shadow.address == address && latest(&shadow));
        self.flaws.is_null |= address == 0;
        self.flaws.is_no_handle |= address != 0 && !is_good;
        std::ptr::without_provenance_mut(address)
    }

    /// What the plan, executor or trainer of this handle is for.
    pub(super) fn planned<H: Opaque>(&self, handle: *mut H) -> Option<Planned> {
        let mut known = self.handles.iter().rev();
        known.find(|shadow| shadow.address == handle.addr())?.planned.clone()
    }

    /// Makes a handle, and keeps it where the call succeeds; where it fails the place for it is untouched.
    #[track_caller]
    pub(super) fn keep<H: Opaque>(
        &mut self,
        planned: Option<Planned>,
        make: impl FnOnce(*mut *mut H) -> tiled_status,
    ) {
        let untouched: *mut H = std::ptr::without_provenance_mut(0x77);
        let mut made = untouched;
        let place = if self.bytes.once_in(64) { self.null() } else { &raw mut made };
        let status = self.judged(|| make(place));
        if status != tiled_capi::TILED_STATUS_OK {
            assert_eq!(made, untouched, "an output was written by a call that failed");
            return;
        }
        assert!(self.handles.iter().all(|shadow| shadow.address != made.addr()), "a handle was given twice");
        self.handles.push(Shadow { address: made.addr(), kind: H::KIND, is_freed: false, planned });
    }

    /// Frees a handle: the latest of this kind, any at all, or NULL.
    #[track_caller]
    pub(super) fn free<H: Opaque>(&mut self, free: extern "C" fn(*mut H) -> tiled_status) {
        let handle = self.handle::<H>();
        self.flaws.is_null = false; // freeing NULL is nothing
        let is_good = !self.flaws.any();
        let status = self.judged(|| free(handle));
        assert_eq!(status == tiled_capi::TILED_STATUS_OK, is_good, "freeing came to {status}");
        for shadow in &mut self.handles {
            shadow.is_freed |= is_good && shadow.address == handle.addr();
        }
    }

    /// Frees what is left, in an order of the bytes' choosing; each handle once.
    pub(super) fn free_all(&mut self) {
        let mut left: Vec<Shadow> = self.handles.iter().filter(|shadow| !shadow.is_freed).cloned().collect();
        while !left.is_empty() {
            let place = usize::from(self.bytes.byte()) % left.len();
            let Shadow { address, kind, .. } = left.swap_remove(place);
            let status = super::FREES[kind](address);
            assert_eq!(status, tiled_capi::TILED_STATUS_OK, "a live handle of kind {kind} cannot be freed");
            assert_ne!(super::FREES[kind](address), tiled_capi::TILED_STATUS_OK, "a handle was freed twice");
        }
    }

    /// A NULL pointer where none may be.
    pub(super) fn null<T>(&mut self) -> *mut T {
        self.flaws.is_null = true;
        std::ptr::null_mut()
    }
}
