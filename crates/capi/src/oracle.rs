//! Random sequences of valid and invalid calls, for fuzzing: what a careless but not malicious C program can do.
//!
//! Memory that is passed is NULL, misaligned or as large as it is said to be; everything else is anything at all:
//! handles freed, wrong or invented, sizes of 0 and 2^63, structs never initialised, networks that do not fit.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

use crate::*;

/// Makes the calls that `data` describes, and frees what they left.
///
/// # Panics
/// Where a call panics inside, answers with a number that is no status, writes an output although it fails, or where
/// a handle is left that cannot be freed.
pub fn calls(data: &[u8]) {
    let mut state = State::new(data);
    let before = tiled_live_handles();
    while !state.data.is_empty() && state.calls < MAX_CALLS {
        state.calls += 1;
        let status = state.call();
        assert!((0..=TILED_STATUS_NOT_FOUND).contains(&status), "status {status}");
        assert_ne!(status, TILED_STATUS_PANIC, "a panic inside");
        assert_ne!(status, TILED_STATUS_POISONED, "a handle was poisoned without a panic");
    }
    state.free_all();
    assert_eq!(before, tiled_live_handles(), "handles were left");
}

const MAX_CALLS: usize = 64;
const ELEMENTS: usize = 1 << 12;

/// What has been made so far, and the bytes that are left.
struct State<'a> {
    data: &'a [u8],
    calls: usize,
    /// Handles of all kinds, some of them freed.
    handles: Vec<usize>,
    memory: Vec<f64>,
    result: Vec<f64>,
}

impl<'a> State<'a> {
    fn new(data: &'a [u8]) -> Self {
        let memory = (0..ELEMENTS).map(|i| f64::from(u32::try_from(i % 31).unwrap_or(0)) - 15.0).collect();
        Self { data, calls: 0, handles: Vec::new(), memory, result: vec![0.0; ELEMENTS] }
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.data.split_first() else { return 0 };
        self.data = rest;
        *first
    }

    /// A small number, or one that no size can be.
    fn number(&mut self) -> i64 {
        const ODD: [i64; 8] = [0, -1, i64::MIN, i64::MAX, 1 << 40, (1 << 40) + 1, -(1 << 40), 1 << 62];
        match self.byte() {
            byte @ 0..=199 => i64::from(byte % 10) + 1,
            byte => ODD[usize::from(byte) % ODD.len()],
        }
    }

    fn small(&mut self) -> i64 {
        i64::from(self.byte() % 9)
    }

    /// A handle that was made, freed or not, or none at all.
    fn handle<H>(&mut self) -> *mut H {
        let byte = usize::from(self.byte());
        let address = match byte {
            0 => 0,
            1 => 0x1234,
            2 => usize::MAX,
            _ if self.handles.is_empty() => 8,
            _ => self.handles[byte % self.handles.len()],
        };
        std::ptr::without_provenance_mut(address)
    }

    /// The latest handle of a kind, most of the time.
    fn recent<H: handle::Opaque>(&mut self) -> *mut H {
        if self.byte() < 16 {
            return self.handle();
        }
        let latest = self.handles.iter().rev().find(|address| **address & 15 == H::KIND);
        std::ptr::without_provenance_mut(latest.copied().unwrap_or(0))
    }

    fn text(&mut self, texts: &[&'static CStr]) -> *const c_char {
        match usize::from(self.byte()) {
            255 => null(),
            byte => texts[byte % texts.len()].as_ptr(),
        }
    }

    fn dtype(&mut self) -> i32 {
        match self.byte() {
            0..=120 => TILED_DTYPE_F32,
            121..=240 => TILED_DTYPE_F64,
            byte => i32::from(byte) - 248,
        }
    }

    /// A tensor within `memory` or `result`, or one that is none.
    fn tensor(&mut self, is_result: bool) -> tiled_tensor {
        let mut shape = [1 + self.small() % 2, 1 + self.small() % 4, 1 + self.small(), 1 + self.small()];
        let mut strides = [shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1];
        let start = if is_result { self.result.as_mut_ptr() } else { self.memory.as_mut_ptr() };
        let dtype = self.dtype();
        let mut tensor = tiled_tensor { dtype, data: start.cast(), ..pointer::Extensible::initial() };
        match self.byte() {
            0..=200 => {}
            201..=210 => {
                shape[usize::from(self.byte() % 4)] =
                    [0, -1, i64::MIN, i64::MAX][usize::from(self.byte() % 4)]
            }
            211..=220 => strides[usize::from(self.byte() % 4)] = 0,
            221..=225 => strides = [i64::MAX; 4],
            226..=230 => tensor.data = null_mut(),
            231..=235 => tensor.data = tensor.data.wrapping_byte_add(1),
            236..=240 => tensor.struct_size = u32::from(self.byte() % 80),
            _ => strides.swap(2, 3),
        }
        tiled_tensor { shape, strides, ..tensor }
    }

    /// Keeps the handle that a successful call made.
    fn keep<H>(&mut self, make: impl FnOnce(*mut *mut H) -> tiled_status) -> tiled_status {
        let untouched: *mut H = std::ptr::without_provenance_mut(0x77);
        let mut made = untouched;
        let status = make(&raw mut made);
        if status == TILED_STATUS_OK {
            self.handles.push(made.addr());
        } else {
            assert_eq!(made, untouched, "an output was written by a call that failed");
        }
        status
    }

    fn call(&mut self) -> tiled_status {
        match self.byte() % 12 {
            0 => self.geometry(),
            1 => self.make(),
            2 => self.grow(),
            3 | 4 => self.convolve(),
            5 => self.pool(),
            6 => self.plan(),
            7 | 8 => self.run(),
            9 => self.look(),
            10 => self.weights(),
            _ => self.free(),
        }
    }

    fn geometry(&mut self) -> tiled_status {
        let window = [0, 1].map(|_| tiled_window {
            kernel: self.number(),
            stride: self.number(),
            dilation: self.number(),
            padding: self.number().wrapping_sub(1),
        });
        let [a, b, c, d] = [0; 4].map(|_: i32| self.number());
        let rows = tiled_interval { begin: a, end: a.wrapping_add(self.small()) };
        let region = tiled_region { rows, cols: tiled_interval { begin: b, end: c } };
        let mut interval = rows;
        let (mut found, mut both, mut count, mut excess) = (region, window[0], 0, [0; 4]);
        let kind = self.byte() % 8;
        // SAFETY: every pointer is to a live value
        unsafe {
            match kind {
                0 => tiled_window_receptive(&raw const window[0], rows, &raw mut interval),
                1 => tiled_window_touched(&raw const window[0], rows, &raw mut interval),
                2 => tiled_window_computable(&raw const window[0], rows, &raw mut interval),
                3 => tiled_window_then(&raw const window[0], &raw const window[1], &raw mut both),
                4 => tiled_window_outputs(&raw const window[0], c, d, 1, &raw mut count),
                5 => tiled_region_receptive(window.as_ptr(), region, c, d, &raw mut found),
                6 => tiled_region_touched(window.as_ptr(), region, c, d, &raw mut found),
                _ => tiled_region_excess(region, found, excess.as_mut_ptr()),
            }
        }
    }

    fn make(&mut self) -> tiled_status {
        let numbers = [0; 4].map(|_: i32| self.number());
        let name = self.text(&[c"seed-001", c"light", c"unet", c"nothing", c""]);
        let (engine, plan, graph) = (self.recent(), self.recent(), self.recent());
        let (dtype, kind) = (self.dtype(), self.byte() % 8);
        let threads = u32::from(self.byte() % 3);
        // SAFETY: every pointer is NULL or to a live value, texts are ended by NUL
        unsafe {
            match kind {
                0 => self.keep(|out| tiled_grid_new(numbers[0], numbers[1], numbers[2], numbers[3], out)),
                1 => {
                    let options = tiled_engine_options { threads, ..pointer::Extensible::initial() };
                    self.keep(|out| tiled_engine_new(&raw const options, out))
                }
                2 => self.keep(|out| tiled_graph_builtin(name, out)),
                3 => self.keep(|out| tiled_graph_new(out)),
                4 => self.keep(|out| tiled_weights_new(graph, dtype, 3, out)),
                5 => self.keep(|out| tiled_executor_new(engine, plan, out)),
                6 => {
                    let mut optimizer: tiled_optimizer = pointer::Extensible::initial();
                    optimizer.kind = i32::from(self.byte() % 4);
                    self.keep(|out| tiled_trainer_new(engine, plan, &raw const optimizer, out))
                }
                _ => {
                    let text = &self.data[..self.data.len().min(64)];
                    self.data = &self.data[text.len()..];
                    self.keep(|out| tiled_graph_from_json(text.as_ptr().cast(), text.len(), out))
                }
            }
        }
    }

    fn grow(&mut self) -> tiled_status {
        let graph = self.recent::<tiled_graph>();
        let name = self.text(&[c"x", c"a", c"b", c"c", c"d", c"e", c"f.g", c""]);
        let op =
            self.text(&[c"conv2d", c"relu", c"max_pool2d", c"add", c"upsample", c"batch_norm", c"softmax"]);
        let attributes = self.text(&[
            c"{}",
            c"{\"out_channels\": 2, \"kernel_size\": 3, \"padding\": 1}",
            c"{\"kernel_size\": 2}",
            c"{\"scale_factor\": 2}",
            c"{\"kernel_size\": -1, \"out_channels\": 1e30}",
            c"[",
        ]);
        let values = [0; 3].map(|_: i32| self.number().cast_unsigned());
        let count = usize::from(self.byte() % 4);
        let (channels, kind) = (self.number(), self.byte() % 3);
        let mut value = 0;
        // SAFETY: every pointer is NULL or to a live value, texts are ended by NUL, counts are those of arrays
        unsafe {
            match kind {
                0 => tiled_graph_add_input(graph, name, channels, &raw mut value),
                1 => {
                    tiled_graph_add_node(graph, name, op, attributes, values.as_ptr(), count, &raw mut value)
                }
                _ => tiled_graph_set_outputs(graph, values.as_ptr(), count),
            }
        }
    }

    fn convolve(&mut self) -> tiled_status {
        let mut conv: tiled_conv2d = pointer::Extensible::initial();
        conv.activation = i32::from(self.byte() % 8);
        if self.byte() > 128 {
            let padding = self.number();
            conv = tiled_conv2d { padding_before: [padding; 2], padding_after: [padding; 2], ..conv };
            conv.stride = [self.number(), 1];
            conv.groups = self.number();
        }
        let options = self.options();
        let engine = self.recent();
        let (x, w) = (self.tensor(false), self.tensor(false));
        let mut y = self.tensor(true);
        y.dtype = x.dtype;
        if self.byte() > 32 {
            // SAFETY: every pointer is to a live value; where it fails the shape stays
            unsafe {
                tiled_conv2d_output_shape(
                    &raw const conv,
                    x.shape.as_ptr(),
                    w.shape.as_ptr(),
                    y.shape.as_mut_ptr(),
                );
            }
            self.contiguous(&mut y);
        }
        let kind = self.byte() % 3;
        let (conv, options, x, w, y) =
            (&raw const conv, &raw const options, &raw const x, &raw const w, &raw const y);
        // SAFETY: tensors that the library takes lie within the memory, and results apart from it
        unsafe {
            match kind {
                0 => tiled_conv2d_forward(engine, conv, options, x, w, null(), y),
                1 => tiled_conv2d_backward_input(engine, conv, options, x, w, y),
                _ => tiled_conv2d_backward_weight(engine, conv, options, x, w, y, null()),
            }
        }
    }

    fn pool(&mut self) -> tiled_status {
        let mut pool: tiled_pool2d = pointer::Extensible::initial();
        if self.byte() > 128 {
            pool.kernel = [self.number(), self.number()];
            pool.stride = [self.number(), self.number()];
            pool.padding_before = [self.number().wrapping_sub(1); 2];
            pool.ceil_mode = i32::from(self.byte() % 2);
        }
        let options = self.options();
        let engine = self.recent();
        let x = self.tensor(false);
        let mut y = self.tensor(true);
        y.dtype = x.dtype;
        // SAFETY: every pointer is to a live value; where it fails the shape stays
        unsafe { tiled_pool2d_output_shape(&raw const pool, x.shape.as_ptr(), y.shape.as_mut_ptr()) };
        self.contiguous(&mut y);
        let kind = self.byte() % 4;
        let (pool, options, x, y) = (&raw const pool, &raw const options, &raw const x, &raw const y);
        // SAFETY: tensors that the library takes lie within the memory, and results apart from it
        unsafe {
            match kind {
                0 => tiled_max_pool2d_forward(engine, pool, options, x, y),
                1 => tiled_avg_pool2d_forward(engine, pool, options, x, y),
                2 => tiled_max_pool2d_backward(engine, pool, options, x, x, y),
                _ => tiled_avg_pool2d_backward(engine, pool, options, x, y),
            }
        }
    }

    /// Makes a result contiguous; one that would leave its memory becomes none.
    fn contiguous(&mut self, tensor: &mut tiled_tensor) {
        let fits = tensor.shape.iter().try_fold(1_i64, |product, extent| product.checked_mul(*extent));
        if fits.is_none_or(|len| usize::try_from(len).is_ok_and(|len| len > ELEMENTS)) {
            tensor.data = null_mut();
            return;
        }
        let [_, c, h, w] = tensor.shape;
        tensor.strides = [c.wrapping_mul(h).wrapping_mul(w), h.wrapping_mul(w), w, 1];
    }

    fn options(&mut self) -> tiled_operator_options {
        let mut options: tiled_operator_options = pointer::Extensible::initial();
        if self.byte() > 128 {
            options.tile = [self.number(), self.number()];
            options.memory_bytes = u64::from(self.byte()) << self.small();
        }
        options
    }

    fn plan(&mut self) -> tiled_status {
        let shape = [1 + self.small() % 2, 1 + self.small() % 3, 1 + 4 * self.small(), 1 + 4 * self.small()];
        let mut shape = shape;
        if self.byte() < 16 {
            shape[usize::from(self.byte() % 4)] = [0, -1, i64::MIN, i64::MAX][usize::from(self.byte() % 4)];
        }
        let objective = tiled_objective {
            mode: i32::from(self.byte() % 3),
            loss: i32::from(self.byte() % 6),
            outputs: i32::from(self.byte() % 2),
            grad_inputs: i32::from(self.byte() % 2),
            grad_params: i32::from(self.byte() % 2),
            ..pointer::Extensible::initial()
        };
        let mut options =
            tiled_plan_options { hold: i32::from(self.byte() % 5), ..pointer::Extensible::initial() };
        if self.byte() > 128 {
            options.tile = [self.number(), self.number()];
            options.memory_bytes = u64::from(self.byte()) << 12;
            options.lanes = u32::from(self.byte() % 4);
        }
        let (engine, graph, dtype) = (self.recent(), self.recent(), self.dtype());
        let count = usize::from(self.byte() > 8);
        let (objective, options) = (&raw const objective, &raw const options);
        // SAFETY: every pointer is to a live value, and the count is that of the shapes
        self.keep(|out| unsafe {
            tiled_plan_new(engine, graph, dtype, shape.as_ptr(), count, objective, options, out)
        })
    }

    fn run(&mut self) -> tiled_status {
        let mut inputs: Vec<tiled_source> = Vec::new();
        for _ in 0..self.byte() % 3 {
            let tensor = self.tensor(false);
            let read: tiled_read_fn = if self.byte() > 100 { Some(fill) } else { None };
            inputs.push(tiled_source { tensor, read, ..pointer::Extensible::initial() });
        }
        let sink =
            tiled_sink { tensor: self.tensor(true), write: Some(ignore), ..pointer::Extensible::initial() };
        let io = tiled_io {
            inputs: inputs.as_ptr(),
            input_count: inputs.len(),
            outputs: &raw const sink,
            output_count: usize::from(self.byte() % 2),
            ..pointer::Extensible::initial()
        };
        let (executor, trainer, weights) = (self.recent(), self.recent(), self.recent());
        // SAFETY: structs are live, arrays as long as said, tensors within the memory
        unsafe {
            if self.byte().is_multiple_of(2) {
                tiled_executor_run(executor, weights, &raw const io, null_mut())
            } else {
                tiled_trainer_step(trainer, weights, &raw const io, null_mut())
            }
        }
    }

    fn look(&mut self) -> tiled_status {
        let mut buffer = [0_i8; 256].map(|zero: i8| zero as c_char);
        let capacity = usize::from(self.byte());
        let (mut length, mut numbers, mut sizes) = (0, [0_i64; 4], [0_usize; 4]);
        let mut region = tiled_region::default();
        let place = usize::try_from(self.number()).unwrap_or(usize::MAX);
        let (row, col) = (self.number().wrapping_sub(1), self.number().wrapping_sub(1));
        let (start, length) = (buffer.as_mut_ptr(), &raw mut length);
        // SAFETY: every pointer is to a live value, and the buffer has the capacity
        unsafe {
            match self.byte() % 8 {
                0 => tiled_engine_name(self.recent(), start, capacity, length),
                1 => tiled_graph_to_json(self.recent(), start, capacity, length),
                2 => tiled_grid_counts(self.recent(), numbers.as_mut_ptr()),
                3 => tiled_grid_tile(self.recent(), row, col, &raw mut region),
                4 => tiled_plan_region(self.recent(), 0, place, row, col, &raw mut region),
                5 => tiled_plan_node_name(self.recent(), 0, place, start, capacity, length),
                6 => tiled_graph_counts(self.recent(), sizes.as_mut_ptr()),
                _ => tiled_weights_name(self.recent(), place, start, capacity, length),
            }
        }
    }

    fn weights(&mut self) -> tiled_status {
        let (index, dtype) = (usize::from(self.byte() % 8), self.dtype());
        let count = usize::from(self.byte()) * 4;
        let (from, to) = (self.memory.as_ptr().cast::<c_void>(), self.result.as_mut_ptr().cast::<c_void>());
        // SAFETY: the memory has more elements than are asked for
        unsafe {
            match self.byte() % 4 {
                0 => tiled_weights_set(self.recent(), index, dtype, from, count),
                1 => tiled_weights_get(self.recent(), index, dtype, to, count),
                2 => tiled_executor_gradient(self.recent(), index, dtype, to, count),
                _ => {
                    let weights = self.recent();
                    self.keep(|out| tiled_weights_clone(weights, out))
                }
            }
        }
    }

    fn free(&mut self) -> tiled_status {
        match self.byte() % 7 {
            0 => tiled_grid_free(self.handle()),
            1 => tiled_engine_free(self.handle()),
            2 => tiled_graph_free(self.handle()),
            3 => tiled_weights_free(self.handle()),
            4 => tiled_plan_free(self.handle()),
            5 => tiled_executor_free(self.handle()),
            _ => tiled_trainer_free(self.handle()),
        }
    }

    fn free_all(&mut self) {
        for address in std::mem::take(&mut self.handles) {
            fn of<H>(address: usize) -> *mut H {
                std::ptr::without_provenance_mut(address)
            }
            let freed = [
                tiled_grid_free(of(address)),
                tiled_engine_free(of(address)),
                tiled_graph_free(of(address)),
                tiled_weights_free(of(address)),
                tiled_plan_free(of(address)),
                tiled_executor_free(of(address)),
                tiled_trainer_free(of(address)),
            ];
            assert!(
                freed.iter().filter(|status| **status == TILED_STATUS_OK).count() <= 1,
                "freed twice: {freed:?}"
            );
        }
    }
}

unsafe extern "C" fn fill(_user: *mut c_void, region: tiled_region, window: *const tiled_tensor) -> i32 {
    // SAFETY: the library gives a window that lives until this returns
    let window = unsafe { &*window };
    assert_eq!(window.shape[2], region.rows.end - region.rows.begin);
    let bytes = if window.dtype == TILED_DTYPE_F32 { 4 } else { 8 };
    let len = usize::try_from(window.shape.iter().product::<i64>()).unwrap_or(0) * bytes;
    // SAFETY: the window has as many elements as its shape says
    unsafe { window.data.cast::<u8>().write_bytes(0, len) };
    0
}

unsafe extern "C" fn ignore(_user: *mut c_void, _region: tiled_region, window: *const tiled_tensor) -> i32 {
    // SAFETY: the library gives a window that lives until this returns
    i32::from(unsafe { (*window).data.is_null() })
}
