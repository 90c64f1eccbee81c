//! Random sequences of valid and invalid calls, for fuzzing: what a careless but not malicious C program can do.
//!
//! Memory that is passed is NULL, misaligned or as large as it is said to be; everything else is anything at all:
//! handles freed, wrong or invented, sizes of 0 and 2^63, structs never initialised, networks that do not fit, callbacks
//! that fail, cancel or call the library. The oracle remembers what it holds (`shadow`), and so what a call must answer.
//!
//! It is not part of `libtiled.so`, it is a caller of it: it knows the functions of the header and nothing behind them. Nor does it
//! check numbers, which the conformance suite and `tiled-verify` do; where a call is repeated with other tiles, its bits are compared.
//!
//! ```text
//!   bytes ─ choices ─► a call with its arguments ─► libtiled ─► status, message, outputs ─┐
//!              └────► shadow: what is wrong with them, what was given out ────────────────┴─► do they agree?
//! ```
//!
//! # Example
//!
//! ```
//! // the first byte makes an engine, a network and weights; none is left that could ask for more
//! assert!(tiled_capi_oracle::calls(&[3]) >= 3);
//! ```

mod bytes;
mod callbacks;
mod geometry;
mod header;
mod look;
mod memory;
mod network;
mod operators;
mod runs;
mod settings;
mod shadow;

use tiled_capi::*;

use bytes::Bytes;
use memory::Arena;
use shadow::{Flaws, Shadow};

/// Makes the calls that `data` describes, and frees what they left. Gives the number of calls.
///
/// # Panics
/// Where a call panics inside, answers with a status that its arguments do not account for, fails without a message,
/// writes although it fails or beside what it was given, or where a handle is left that cannot be freed.
pub fn calls(data: &[u8]) -> usize {
    let mut state = State::new(data);
    let before = tiled_live_handles();
    state.prepare();
    while !state.bytes.is_empty() && state.calls < MAX_CALLS {
        state.step();
    }
    state.restore_settings();
    let held = state.handles.iter().filter(|shadow| !shadow.is_freed).count();
    assert_eq!(before + held, tiled_live_handles(), "handles were lost");
    state.free_all();
    assert_eq!(before, tiled_live_handles(), "handles were left");
    state.calls
}

const MAX_CALLS: usize = 96;

/// How a handle of a kind is freed, by the kind's number.
const FREES: [fn(usize) -> tiled_status; 8] = [
    |_| TILED_STATUS_INVALID_HANDLE,
    |address| tiled_grid_free(std::ptr::without_provenance_mut(address)),
    |address| tiled_engine_free(std::ptr::without_provenance_mut(address)),
    |address| tiled_graph_free(std::ptr::without_provenance_mut(address)),
    |address| tiled_weights_free(std::ptr::without_provenance_mut(address)),
    |address| tiled_plan_free(std::ptr::without_provenance_mut(address)),
    |address| tiled_executor_free(std::ptr::without_provenance_mut(address)),
    |address| tiled_trainer_free(std::ptr::without_provenance_mut(address)),
];

/// What has been made so far, what is wrong with the next call, and the bytes that are left.
struct State<'a> {
    bytes: Bytes<'a>,
    calls: usize,
    /// Handles of all kinds, some of them freed.
    handles: Vec<Shadow>,
    arena: Arena,
    flaws: Flaws,
}

impl<'a> State<'a> {
    fn new(data: &'a [u8]) -> Self {
        let (bytes, arena) = (Bytes::new(data), Arena::new());
        Self { bytes, calls: 0, handles: Vec::new(), arena, flaws: Flaws::default() }
    }

    /// Makes a handle of most kinds, so that short sequences reach the calls that need them.
    fn prepare(&mut self) {
        let wanted = self.bytes.byte();
        if wanted & 1 != 0 {
            self.make_engine();
        }
        if wanted & 2 != 0 {
            self.make_builtin();
            self.make_weights();
        }
        if wanted & 4 != 0 {
            self.make_plan();
        }
        if wanted & 8 != 0 {
            self.make_executor();
        }
        if wanted & 16 != 0 {
            self.make_trainer();
        }
    }

    fn step(&mut self) {
        match self.bytes.below(32) {
            0 | 1 => self.geometry(),
            2 => self.grids(),
            3 => self.make_engine(),
            4 => self.make_builtin(),
            5 => self.make_from_json(),
            6 | 7 => self.grow_graph(),
            8 => self.look_at_graph(),
            9 => self.make_weights(),
            10 | 11 => self.use_weights(),
            12 | 13 => self.convolve(),
            14 => self.differentiate_convolution(),
            15 | 16 => self.pool(),
            17 | 18 => self.make_plan(),
            19 => self.look_at_plan(),
            20 => self.make_executor(),
            21 => self.make_trainer(),
            22..=24 => self.run(),
            25 => self.step_trainer(),
            26 => self.read_gradient(),
            27 => self.look_at_engine(),
            28 => self.initialise(),
            29 => self.describe_tensor(),
            30 => self.set_logger_or_allocator(),
            _ => self.free_one(),
        }
    }

    fn free_one(&mut self) {
        match self.bytes.below(7) {
            0 => self.free(tiled_grid_free),
            1 => self.free(tiled_engine_free),
            2 => self.free(tiled_graph_free),
            3 => self.free(tiled_weights_free),
            4 => self.free(tiled_plan_free),
            5 => self.free(tiled_executor_free),
            _ => self.free(tiled_trainer_free),
        }
    }

    /// Makes a call, and holds what it answers against what is known of its arguments.
    #[track_caller]
    fn judged(&mut self, call: impl FnOnce() -> tiled_status) -> tiled_status {
        self.judged_writing(&[], call)
    }

    /// The same for a call that writes these tensors of the arena where it succeeds, and nothing else.
    #[track_caller]
    fn judged_writing(
        &mut self,
        written: &[tiled_tensor],
        call: impl FnOnce() -> tiled_status,
    ) -> tiled_status {
        let before = message();
        self.arena.remember();
        let status = call();
        self.calls += 1;
        let (flaws, after) = (std::mem::take(&mut self.flaws), message());
        assert!((0..=TILED_STATUS_DEVICE).contains(&status), "status {status}");
        if status == TILED_STATUS_OK {
            assert!(!flaws.any(), "a call succeeded with {flaws:?}");
            assert_eq!(before, after, "a call that succeeded has a message");
            self.arena.assert_only_written(written);
            return status;
        }
        assert!(!after.is_empty(), "status {status} without a message");
        match status {
            TILED_STATUS_PANIC => panic!("a panic inside: {after}"),
            TILED_STATUS_POISONED => panic!("a handle was poisoned without a panic"),
            TILED_STATUS_BUSY => panic!("a handle is in use by nobody: {after}"),
            TILED_STATUS_NULL_POINTER => assert!(flaws.is_null, "no pointer is NULL: {after}"),
            TILED_STATUS_INVALID_HANDLE | TILED_STATUS_WRONG_HANDLE => {
                assert!(flaws.is_no_handle, "every handle is good: {after}");
            }
            _ => {}
        }
        let may_write_in_part =
            [TILED_STATUS_CALLBACK, TILED_STATUS_CANCELLED, TILED_STATUS_NOT_FINITE].contains(&status);
        self.arena.assert_only_written(if may_write_in_part { written } else { &[] });
        status
    }
}

/// This thread's last message.
fn message() -> String {
    let mut bytes = [0_u8; 1024];
    // SAFETY: the buffer has room for as many bytes as it is said to have
    let len = unsafe { tiled_last_error(bytes.as_mut_ptr().cast(), bytes.len()) };
    let copied = bytes.iter().position(|byte| *byte == 0);
    let copied = copied.expect("the message is ended by a NUL");
    assert!(copied <= len, "{copied} bytes of {len}");
    std::str::from_utf8(&bytes[..copied]).expect("messages are UTF-8").to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_bytes_are_no_calls() {
        assert_eq!(super::calls(&[]), 0);
    }
}
