//! Networks from text and node by node, and their weights.

use std::ffi::{CString, c_char, c_void};
use std::ptr::null;
use std::sync::atomic::{AtomicU64, Ordering};

use tiled_capi::*;

use super::State;
use super::header::Extensible;
use super::memory::SECOND;

impl State<'_> {
    pub(super) fn make_builtin(&mut self) {
        // the large ones take seconds where nothing is optimised
        let name = self.bytes.text(&[c"seed-001", c"seed-002", c"seed-001", c"light", c"", c"nothing"]);
        let name = if self.bytes.once_in(48) { self.null::<c_char>().cast_const() } else { name };
        // SAFETY: the name is NULL or ended by a NUL, and the place for the handle NULL or live
        self.keep(None, |out| unsafe { tiled_graph_builtin(name, out) });
    }

    pub(super) fn make_from_json(&mut self) {
        let mut text: Vec<u8> = match self.bytes.below(4) {
            0 => self.bytes.take(96).to_vec(),
            1 => NETWORK.into(),
            2 => BRANCHES.into(),
            _ => {
                let graph = self.handle::<tiled_graph>();
                self.text_of(|buffer, capacity, length| {
                    // SAFETY: the buffer has the capacity
                    unsafe { tiled_graph_to_json(graph, buffer, capacity, length) }
                })
                .unwrap_or_default()
            }
        };
        if self.bytes.once_in(4) && !text.is_empty() {
            let place = usize::from(self.bytes.byte()) * 7 % text.len();
            text[place] = self.bytes.byte();
        }
        if self.bytes.once_in(16) {
            text.truncate(usize::from(self.bytes.byte()));
        }
        text.push(b'}'); // a place to point to where there is no text
        let (start, len) = (text.as_ptr().cast::<c_char>(), text.len() - 1);
        let start = if self.bytes.once_in(48) { self.null() } else { start.cast_mut() };
        // SAFETY: the text is as long as said or NULL
        self.keep(None, |out| unsafe { tiled_graph_from_json(start, len, out) });
    }

    pub(super) fn grow_graph(&mut self) {
        if self.bytes.once_in(8) {
            // SAFETY: the place for the handle is NULL or live
            self.keep(None, |out| unsafe { tiled_graph_new(out) });
            return;
        }
        let graph = self.handle::<tiled_graph>();
        let mut counts = [0_usize; 3];
        // SAFETY: there is room for three numbers; the answer does not matter
        let _ = unsafe { tiled_graph_counts(graph, counts.as_mut_ptr()) };
        let values = counts[0] + counts[1];
        let names = [c"x", c"a", c"b", c"c", c"d", c"e", c"f.g", c""];
        let name = self.bytes.text(&names);
        let (op, attributes) = self.bytes.choose(&OPERATORS);
        let odd_attributes =
            [c"[", c"{\"padding\": 9223372036854775807}", c"{\"name\": 1}", c"null", c"\xff"];
        let attributes = match self.bytes.below(16) {
            14 => null(),
            15 => self.bytes.text(&odd_attributes),
            _ => attributes.as_ptr(),
        };
        // the last values most of the time
        let mut value_or_odd = |back: usize| match self.bytes.below(16) {
            15 => self.bytes.number().cast_unsigned(),
            byte => values.saturating_sub(1 + back + usize::from(byte / 10)) as tiled_value,
        };
        let inputs = [value_or_odd(0), value_or_odd(1), value_or_odd(0)];
        let count = usize::from(self.bytes.choose(&[1_u8, 1, 1, 2, 2, 3, 0]));
        let mut value = u64::MAX;
        let kind = self.bytes.below(8);
        let place = if self.bytes.once_in(48) && kind < 7 { self.null() } else { &raw mut value };
        let channels = if self.bytes.once_in(8) { self.bytes.number() } else { self.bytes.from(1, 3) };
        // SAFETY: pointers are NULL or to live values, texts are ended by NUL, counts are those of arrays
        let status = self.judged(|| unsafe {
            match kind {
                0 | 1 => tiled_graph_add_input(graph, name, channels, place),
                2..=6 => {
                    tiled_graph_add_node(graph, name, op.as_ptr(), attributes, inputs.as_ptr(), count, place)
                }
                _ => tiled_graph_set_outputs(graph, inputs.as_ptr(), count),
            }
        });
        let is_written = value != u64::MAX;
        assert_eq!(is_written, status == TILED_STATUS_OK && kind < 7, "value {value} with status {status}");
        let mut after = [0_usize; 3];
        // SAFETY: as above
        if unsafe { tiled_graph_counts(graph, after.as_mut_ptr()) } == TILED_STATUS_OK {
            let grown = after[0] + after[1] - values;
            assert_eq!(grown, usize::from(is_written), "a network grew by {grown} with status {status}");
        }
    }

    /// Shapes for the inputs of a network, which fit it most of the time.
    pub(super) fn input_shapes(&mut self, graph: *mut tiled_graph) -> Vec<[i64; 4]> {
        let mut counts = [0_usize; 3];
        // SAFETY: there is room for three numbers; a handle that is none leaves them
        let _ = unsafe { tiled_graph_counts(graph, counts.as_mut_ptr()) };
        let (batch, sides) = (self.bytes.from(1, 2), [self.bytes.from(1, 16), self.bytes.from(1, 16)]);
        let mut shapes: Vec<[i64; 4]> = (0..counts[0].min(3) as tiled_value)
            .map(|value| {
                let mut channels = 1;
                // SAFETY: the place is live
                let _ = unsafe { tiled_graph_channels(graph, value, &raw mut channels) };
                [batch, channels, sides[0], sides[1]]
            })
            .collect();
        if self.bytes.once_in(16) && !shapes.is_empty() {
            shapes[0][usize::from(self.bytes.below(4))] = self.bytes.number();
        }
        shapes
    }

    /// The shapes of a network's outputs, none where it has none for these inputs.
    pub(super) fn output_shapes(&self, graph: *mut tiled_graph, inputs: &[[i64; 4]]) -> Vec<[i64; 4]> {
        let shapes = inputs.as_ptr().cast::<i64>();
        let shape_of = |place: usize| {
            let (mut value, mut shape) = (0, [0_i64; 4]);
            // SAFETY: places are live and there are as many shapes as said
            unsafe {
                let found = tiled_graph_output(graph, place, &raw mut value);
                let status = tiled_graph_shape(graph, shapes, inputs.len(), value, shape.as_mut_ptr());
                (found == TILED_STATUS_OK && status == TILED_STATUS_OK).then_some(shape)
            }
        };
        (0..4).map_while(shape_of).collect()
    }

    pub(super) fn look_at_graph(&mut self) {
        let graph = self.handle::<tiled_graph>();
        let flaws = self.flaws;
        let inputs = self.input_shapes(graph);
        self.flaws = flaws;
        let place = usize::from(self.bytes.below(12));
        let value =
            if self.bytes.once_in(16) { self.bytes.nonsense().cast_unsigned() } else { place as tiled_value };
        let (mut number, mut shape, mut counts) = (-7_i64, [-7_i64; 4], [usize::MAX; 3]);
        let mut found = u64::MAX;
        let name = self.bytes.text(&[c"x", c"conv1", c"relu", c"r", c"", c"\xff"]);
        let kind = self.bytes.below(6);
        if kind == 5 {
            self.text_of(|buffer, capacity, length| {
                // SAFETY: the buffer has the capacity
                unsafe { tiled_graph_name(graph, value, buffer, capacity, length) }
            });
            return;
        }
        // SAFETY: places are live and as large as the calls want them, and there are as many shapes as said
        let status = self.judged(|| unsafe {
            match kind {
                0 => tiled_graph_channels(graph, value, &raw mut number),
                1 => tiled_graph_counts(graph, counts.as_mut_ptr()),
                2 => tiled_graph_value(graph, name, &raw mut found),
                3 => tiled_graph_output(graph, place, &raw mut found),
                _ => {
                    tiled_graph_shape(graph, inputs.as_ptr().cast(), inputs.len(), value, shape.as_mut_ptr())
                }
            }
        });
        let is_written = number != -7 || counts[0] != usize::MAX || found != u64::MAX || shape != [-7; 4];
        assert_eq!(is_written, status == TILED_STATUS_OK, "kind {kind}, status {status}");
    }

    pub(super) fn make_weights(&mut self) {
        let (graph, dtype, seed) = (self.handle::<tiled_graph>(), self.dtype(), u64::from(self.bytes.byte()));
        // SAFETY: the place for the handle is NULL or live
        self.keep(None, |out| unsafe { tiled_weights_new(graph, dtype, seed, out) });
    }

    pub(super) fn use_weights(&mut self) {
        let weights = self.handle::<tiled_weights>();
        let index = if self.bytes.once_in(16) { usize::MAX } else { usize::from(self.bytes.below(6)) };
        let (mut number, mut shape) = (usize::MAX, [-7_i64; 4]);
        let kind = self.bytes.below(16);
        match kind {
            0 => {
                // SAFETY: the place for the handle is NULL or live
                self.keep(None, |out| unsafe { tiled_weights_clone(weights, out) });
            }
            1..=6 => self.copy_elements(weights, index, kind < 4),
            7 | 8 => drop(self.text_of(|buffer, capacity, length| {
                // SAFETY: the buffer has the capacity
                unsafe { tiled_weights_name(weights, index, buffer, capacity, length) }
            })),
            9 if self.bytes.once_in(16) => self.save_and_load(weights),
            _ => {
                let name = self.bytes.text(&[c"conv1.weight", c"conv1.bias", c"a.weight", c"", c"\xff"]);
                let mut rank = usize::MAX;
                // SAFETY: places are live and as large as the calls want them
                let status = self.judged(|| unsafe {
                    match kind {
                        9 | 10 => tiled_weights_count(weights, &raw mut number),
                        11 | 12 => tiled_weights_find(weights, name, &raw mut number),
                        _ => tiled_weights_shape(weights, index, shape.as_mut_ptr(), &raw mut rank),
                    }
                });
                let is_written = number != usize::MAX || (shape != [-7; 4] && rank != usize::MAX);
                assert_eq!(is_written, status == TILED_STATUS_OK, "kind {kind}, status {status}");
            }
        }
    }

    /// Sets or gets a parameter's elements, as many as it has most of the time.
    fn copy_elements(&mut self, weights: *mut tiled_weights, index: usize, is_set: bool) {
        let (dtype, mut shape, mut rank) = (self.dtype(), [0_i64; 4], 0);
        // SAFETY: places are live; where it fails the count is another one
        let _ = unsafe { tiled_weights_shape(weights, index, shape.as_mut_ptr(), &raw mut rank) };
        let mut count = usize::try_from(shape.iter().product::<i64>()).unwrap_or(0);
        if self.bytes.once_in(8) || count > SECOND {
            count = usize::from(self.bytes.byte());
        }
        let (from, mut to) = (self.arena.readable(), self.arena.writable());
        if self.bytes.once_in(32) {
            to = self.null();
        }
        if is_set {
            let from = if to.is_null() { to } else { from };
            // SAFETY: there are as many elements as are asked for
            self.judged(|| unsafe { tiled_weights_set(weights, index, dtype, from, count) });
        } else {
            let written = [flat(dtype, to, count)];
            // SAFETY: there is room for as many elements as are asked for
            self.judged_writing(&written, || unsafe { tiled_weights_get(weights, index, dtype, to, count) });
        }
    }

    fn save_and_load(&mut self, weights: *mut tiled_weights) {
        let flaws = std::mem::take(&mut self.flaws);
        let (graph, dtype) = (self.handle::<tiled_graph>(), self.dtype());
        let loading = std::mem::replace(&mut self.flaws, flaws);
        // several threads may be at it, and one after another
        static FILES: AtomicU64 = AtomicU64::new(0);
        let file = FILES.fetch_add(1, Ordering::Relaxed);
        let name = format!("tiled-calls-{}-{file}.safetensors", std::process::id());
        let path = std::env::temp_dir().join(name);
        let path = CString::new(path.to_string_lossy().as_bytes()).unwrap_or_default();
        // SAFETY: the path is ended by a NUL
        self.judged(|| unsafe { tiled_weights_save(weights, path.as_ptr()) });
        self.flaws = loading;
        // SAFETY: as above, and the place for the handle is NULL or live
        self.keep(None, |out| unsafe { tiled_weights_load(graph, dtype, path.as_ptr(), out) });
        let _ = std::fs::remove_file(path.to_string_lossy().as_ref());
    }

    /// The text that a call gives through a buffer, asked for its length first; a small buffer is told and left alone.
    #[track_caller]
    pub(super) fn text_of(
        &mut self,
        mut read: impl FnMut(*mut c_char, usize, *mut usize) -> tiled_status,
    ) -> Option<Vec<u8>> {
        let (mut length, untouched) = (usize::MAX, 0x55_u8);
        let flaws = self.flaws;
        let status = self.judged(|| read(std::ptr::null_mut(), 0, &raw mut length));
        assert_eq!(status == TILED_STATUS_OK, length != usize::MAX, "length {length} with status {status}");
        if status != TILED_STATUS_OK {
            return None;
        }
        let capacity = match self.bytes.below(8) {
            7 => length.min(usize::from(self.bytes.byte())),
            _ => length + 1 + usize::from(self.bytes.below(3)),
        };
        let mut text = vec![untouched; capacity + 1];
        self.flaws = flaws;
        self.flaws.is_wrong |= capacity > 0 && capacity <= length;
        let mut again = usize::MAX;
        let status = self.judged(|| read(text.as_mut_ptr().cast(), capacity, &raw mut again));
        if status != TILED_STATUS_OK {
            assert_eq!(status, TILED_STATUS_BUFFER_TOO_SMALL, "a buffer of {capacity} for {length} bytes");
            assert!(again == usize::MAX && text.iter().all(|byte| *byte == untouched), "it was written");
            return None;
        }
        assert_eq!(again, length, "the length is another one");
        assert_eq!(text[capacity], untouched, "past the end was written");
        text.truncate(length.min(capacity));
        assert!(capacity == 0 || std::str::from_utf8(&text).is_ok_and(|text| !text.contains('\0')));
        Some(text)
    }
}

/// `count` elements in a row.
pub(super) fn flat(dtype: i32, data: *mut c_void, count: usize) -> tiled_tensor {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    tiled_tensor {
        dtype,
        data,
        shape: [1, 1, 1, count],
        strides: [count, count, count, 1],
        ..Extensible::initial()
    }
}

/// Operators with attributes that fit.
const OPERATORS: [(&std::ffi::CStr, &std::ffi::CStr); 20] = [
    (c"conv2d", c"{\"out_channels\": 2, \"kernel_size\": 3, \"padding\": 1}"),
    (c"conv2d", c"{\"out_channels\": 3, \"kernel_size\": [1, 2], \"stride\": 2, \"bias\": false}"),
    (
        c"conv2d",
        c"{\"out_channels\": 1, \"kernel_size\": 3, \"padding\": \"same\", \"padding_mode\": \"reflect\"}",
    ),
    (c"conv_transpose2d", c"{\"out_channels\": 2, \"kernel_size\": 2, \"stride\": 2}"),
    (c"relu", c"{}"),
    (c"gelu", c"{}"),
    (c"sigmoid", c"{}"),
    (c"add", c"{}"),
    (c"mul", c"{}"),
    (c"concat", c"{}"),
    (c"max_pool2d", c"{\"kernel_size\": 2}"),
    (c"avg_pool2d", c"{\"kernel_size\": 3, \"stride\": 2, \"padding\": 1}"),
    (c"upsample", c"{\"scale_factor\": 2}"),
    (c"batch_norm", c"{}"),
    (c"instance_norm", c"{\"affine\": true}"),
    (c"group_norm", c"{\"num_groups\": 1}"),
    (c"layer_norm", c"{}"),
    (c"softmax", c"{}"),
    (c"global_avg_pool", c"{}"),
    (c"dropout", c"{\"p\": 0.5}"),
];

const NETWORK: &[u8] = br#"{"inputs": [{"name": "x", "channels": 2}], "nodes": [
{"name": "a", "op": "conv2d", "inputs": ["x"], "out_channels": 3, "kernel_size": 3, "padding": 1},
{"name": "b", "op": "batch_norm", "inputs": ["a"]}, {"name": "r", "op": "relu", "inputs": ["b"]},
{"name": "p", "op": "max_pool2d", "inputs": ["r"], "kernel_size": 2}], "outputs": ["p"]}"#;

const BRANCHES: &[u8] =
    br#"{"inputs": [{"name": "x", "channels": 1}, {"name": "y", "channels": 1}], "nodes": [
{"name": "s", "op": "add", "inputs": ["x", "y"]}, {"name": "g", "op": "global_avg_pool", "inputs": ["s"]},
{"name": "m", "op": "mul", "inputs": ["s", "g"]}, {"name": "c", "op": "concat", "inputs": ["m", "x"]}],
"outputs": ["c", "s"]}"#;
