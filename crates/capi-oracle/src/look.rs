//! What engines and plans say of themselves.

use tiled_capi::*;

use super::State;
use super::header::{Extensible, size_of_u32};

impl State<'_> {
    pub(super) fn make_engine(&mut self) {
        let threads = u32::from(self.bytes.choose(&[1_u8, 1, 1, 2, 3]));
        let mut options = tiled_engine_options { threads, ..Extensible::initial() };
        match self.bytes.below(16) {
            0 => options.isa = c"reference".as_ptr(),
            1 => options.isa = c"portable".as_ptr(),
            2 => {
                options.isa = self.bytes.text(&[c"", c"bogus", c"\xff", c"AVX2 "]);
                self.flaws.is_wrong = true;
            }
            3 => {
                options.threads = self.bytes.choose(&[1025, u32::MAX]);
                self.flaws.is_wrong = true;
            }
            4 => {
                options.struct_size = u32::from(self.bytes.below(16));
                self.flaws.is_wrong = true;
            }
            _ => {}
        }
        // SAFETY: the options are live, their text ended by a NUL, and the place for the handle NULL or live
        self.keep(None, |out| unsafe { tiled_engine_new(&raw const options, out) });
    }

    /// Texts and numbers that need no handle.
    fn look_at_library(&mut self) {
        let status = self.bytes.choose(&[0, 1, 19, 20, -1, i32::MIN, i32::MAX]);
        for text in [tiled_version_string(), tiled_build_info(), tiled_status_name(status)] {
            // SAFETY: the text is static and ended by a NUL
            let text = unsafe { std::ffi::CStr::from_ptr(text) };
            assert!(text.to_str().is_ok_and(|text| !text.is_empty()), "{text:?}");
        }
        assert!(tiled_version() > 0, "a version of zero");
        self.calls += 4;
    }

    pub(super) fn look_at_engine(&mut self) {
        if self.bytes.once_in(8) {
            self.look_at_library();
            return;
        }
        let engine = self.handle::<tiled_engine>();
        if self.bytes.either() {
            // SAFETY: the buffer has the capacity
            self.text_of(|buffer, capacity, length| unsafe {
                tiled_engine_name(engine, buffer, capacity, length)
            });
            return;
        }
        let mut threads = 0;
        // SAFETY: the place is live
        let status = self.judged(|| unsafe { tiled_engine_threads(engine, &raw mut threads) });
        assert_eq!(status == TILED_STATUS_OK, (1..=3).contains(&threads), "{threads} threads");
    }

    pub(super) fn look_at_plan(&mut self) {
        let plan = self.handle::<tiled_plan>();
        let bytes = &mut self.bytes;
        let [sweep, node] = [bytes.below(3), bytes.below(5)].map(usize::from);
        let [row, col] = [0; 2]
            .map(|_: i32| if bytes.once_in(8) { bytes.number().wrapping_sub(1) } else { bytes.from(0, 2) });
        match bytes.below(8) {
            0 | 1 => {
                let format =
                    self.bytes.choose(&[TILED_EXPLAIN_TEXT, TILED_EXPLAIN_JSON, TILED_EXPLAIN_SVG, 0, -1]);
                self.flaws.is_wrong |= format < 1;
                // SAFETY: the buffer has the capacity
                self.text_of(|buffer, capacity, length| unsafe {
                    tiled_plan_explain(plan, format, buffer, capacity, length)
                });
            }
            2 => {
                // SAFETY: as above
                self.text_of(|buffer, capacity, length| unsafe {
                    tiled_plan_node_name(plan, sweep, node, buffer, capacity, length)
                });
            }
            3 | 4 => {
                let mut counts = [-7_i64; 3];
                // SAFETY: there is room for three numbers
                let status = self.judged(|| unsafe { tiled_plan_sweep(plan, sweep, counts.as_mut_ptr()) });
                let is_written = counts.iter().all(|count| *count > 0);
                assert_eq!(status == TILED_STATUS_OK, is_written, "{counts:?} with status {status}");
            }
            5 => {
                // SAFETY: numbers alone
                let mut summary: tiled_plan_summary = unsafe { std::mem::zeroed() };
                let mut size = size_of_u32::<tiled_plan_summary>();
                if self.bytes.once_in(8) {
                    size = u32::from(self.bytes.below(80));
                    self.flaws.is_wrong = true;
                }
                // SAFETY: there is room for the struct
                let status = self.judged(|| unsafe { tiled_plan_summarise(plan, &raw mut summary, size) });
                assert_eq!(status == TILED_STATUS_OK, summary.struct_size == size && size > 0, "{summary:?}");
                assert!(status != TILED_STATUS_OK || summary.lanes > 0, "{summary:?}");
            }
            _ => {
                let nothing = tiled_interval { begin: 9, end: -9 };
                let mut region = tiled_region { rows: nothing, cols: nothing };
                // SAFETY: there is room for the region
                let status = self
                    .judged(|| unsafe { tiled_plan_region(plan, sweep, node, row, col, &raw mut region) });
                assert_eq!(
                    status == TILED_STATUS_OK,
                    region.rows != nothing,
                    "{region:?} with status {status}"
                );
            }
        }
    }
}
