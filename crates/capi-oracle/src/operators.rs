//! Single operators: forward and backward, of shapes that fit most of the time.

use std::ptr::null;

use tiled_capi::*;

use super::State;
use super::header::Extensible;
use super::memory::{Role, SECOND};

/// A convolution and the shapes of its tensors.
struct Convolution {
    attributes: tiled_conv2d,
    input: [i64; 4],
    weight: [i64; 4],
    output: [i64; 4],
}

impl State<'_> {
    fn convolution(&mut self) -> Convolution {
        let bytes = &mut self.bytes;
        let groups = bytes.from(1, 2);
        let mut input = [bytes.from(1, 2), groups * bytes.from(1, 3), bytes.from(1, 12), bytes.from(1, 12)];
        let mut weight = [groups * bytes.from(1, 9), input[1] / groups, bytes.from(1, 4), bytes.from(1, 4)];
        let mut attributes = tiled_conv2d {
            activation: i32::from(bytes.below(7)),
            stride: [bytes.from(1, 3), bytes.from(1, 3)],
            dilation: [bytes.from(1, 2), bytes.from(1, 2)],
            padding_before: [bytes.from(0, 2), bytes.from(0, 2)],
            padding_after: [bytes.from(0, 2), bytes.from(0, 2)],
            groups,
            ..Extensible::initial()
        };
        if bytes.once_in(12) {
            let (odd, axis) = (bytes.number(), usize::from(bytes.below(2)));
            match bytes.below(8) {
                0 => attributes.stride[axis] = odd,
                1 => attributes.dilation[axis] = odd,
                2 => attributes.padding_before[axis] = odd,
                3 => attributes.padding_after[axis] = odd,
                4 => attributes.groups = odd,
                5 => attributes.negative_slope = f64::NAN,
                6 => input[1] = odd,
                _ => weight[1 + axis] = odd,
            }
        }
        if bytes.once_in(24) {
            attributes.struct_size = u32::from(bytes.below(88)); // all of it is smaller
            self.flaws.is_wrong = true;
        }
        let mut output = [-1; 4];
        let (flaws, conv) = (self.flaws, &raw const attributes);
        // SAFETY: pointers are to live values
        let status = self.judged(|| unsafe {
            tiled_conv2d_output_shape(conv, input.as_ptr(), weight.as_ptr(), output.as_mut_ptr())
        });
        assert_eq!(status != TILED_STATUS_OK, output == [-1; 4], "status {status}, shape {output:?}");
        self.flaws = flaws;
        Convolution { attributes, input, weight, output }
    }

    fn options(&mut self) -> tiled_operator_options {
        let mut options: tiled_operator_options = Extensible::initial();
        if self.bytes.either() {
            options.tile = [self.bytes.from(0, 5), self.bytes.from(0, 5)];
        }
        if self.bytes.once_in(8) {
            options.memory_bytes = u64::from(self.bytes.byte()) << self.bytes.below(12);
        }
        if self.bytes.once_in(24) {
            options.tile[usize::from(self.bytes.below(2))] = self.bytes.choose(&[-1, i64::MIN]);
            self.flaws.is_wrong = true;
        } else if self.bytes.once_in(24) {
            options.tile = [i64::MAX, 1];
        }
        options
    }

    /// A pointer to an argument, NULL now and then, which `is_optional` says whether it may be.
    fn pointer<T>(&mut self, value: &T, is_optional: bool) -> *const T {
        match self.bytes.below(48) {
            // not where it would hide what is wrong with the value
            47 if is_optional && !self.flaws.is_wrong => null(),
            47 if is_optional => value,
            47 => self.null(),
            _ => value,
        }
    }

    pub(super) fn convolve(&mut self) {
        self.poke();
        let Convolution { attributes, input, weight, output } = self.convolution();
        let (options, dtype, engine) = (self.options(), self.dtype(), self.handle::<tiled_engine>());
        let is_forward = self.bytes.either();
        let (from, to) = if is_forward { (input, output) } else { (output, input) };
        let x = self.tensor(Role::Read, dtype, from, 0);
        let w = self.tensor(Role::Read, dtype, weight, 7);
        let mut y = self.tensor(Role::Written, dtype, to, 0);
        if self.bytes.once_in(32) {
            y.data = x.data; // what is written overlaps what is read
            self.flaws.is_wrong = true;
        }
        let has_bias = is_forward && self.bytes.either();
        let bias = self.has(has_bias, |state| state.tensor(Role::Read, dtype, [1, weight[0], 1, 1], 3));
        let bias = bias.as_ref().map_or(null(), std::ptr::from_ref);
        let (conv, chosen) = (self.pointer(&attributes, false), self.pointer(&options, true));
        let (x, w, y) = (self.pointer(&x, false), self.pointer(&w, false), self.pointer(&y, false));
        let written = written(&[y]);
        // SAFETY: tensors that the library takes lie within the arena, and results apart from what is read
        let call = |chosen| unsafe {
            if is_forward {
                tiled_conv2d_forward(engine, conv, chosen, x, w, bias, y)
            } else {
                tiled_conv2d_backward_input(engine, conv, chosen, x, w, y)
            }
        };
        if self.judged_writing(&written, || call(chosen)) == TILED_STATUS_OK && self.bytes.once_in(4) {
            self.assert_same_with_other_tiles(&written, call);
        }
    }

    /// Asserts that the same call gives the same bits where the whole tensor is one tile.
    fn assert_same_with_other_tiles(
        &mut self,
        written: &[tiled_tensor],
        call: impl FnOnce(*const tiled_operator_options) -> tiled_status,
    ) {
        let before = self.arena.take_written();
        let status = self.judged_writing(written, || call(null()));
        assert_eq!(status, TILED_STATUS_OK, "it works in tiles alone");
        self.arena.assert_same(&before, &written[0]);
    }

    fn has<T>(&mut self, wanted: bool, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        wanted.then(|| make(self))
    }

    pub(super) fn differentiate_convolution(&mut self) {
        let Convolution { attributes, input, weight, output } = self.convolution();
        let (options, dtype, engine) = (self.options(), self.dtype(), self.handle::<tiled_engine>());
        let x = self.tensor(Role::Read, dtype, input, 0);
        let gy = self.tensor(Role::Read, dtype, output, 9);
        let gw = self.tensor(Role::Written, dtype, weight, 0);
        let has_bias = self.bytes.either();
        let mut gb =
            self.has(has_bias, |state| state.tensor(Role::Written, dtype, [1, weight[0], 1, 1], SECOND));
        if let Some(bias) = gb.as_mut().filter(|_| self.bytes.once_in(16)) {
            bias.data = gw.data; // the two results overlap
            self.flaws.is_wrong = true;
        }
        let gb = gb.as_ref().map_or(null(), std::ptr::from_ref);
        let (conv, chosen) = (self.pointer(&attributes, false), self.pointer(&options, true));
        let (x, gy, gw) = (self.pointer(&x, false), self.pointer(&gy, false), self.pointer(&gw, false));
        let written = written(&[gw, gb]);
        // SAFETY: as in `convolve`
        let call = || unsafe { tiled_conv2d_backward_weight(engine, conv, chosen, x, gy, gw, gb) };
        if self.judged_writing(&written, call) == TILED_STATUS_OK && self.bytes.once_in(4) {
            let before = self.arena.take_written();
            let status = self.judged_writing(&written, call);
            assert_eq!(status, TILED_STATUS_OK, "it worked the first time alone");
            self.arena.assert_same(&before, &written[0]);
        }
    }

    pub(super) fn pool(&mut self) {
        self.poke();
        let bytes = &mut self.bytes;
        let input = [bytes.from(1, 2), bytes.from(1, 9), bytes.from(1, 12), bytes.from(1, 12)];
        let (kernel, kind) = ([bytes.from(1, 4), bytes.from(1, 4)], bytes.below(4));
        let mut pool = tiled_pool2d {
            kernel,
            stride: [bytes.from(1, 3), bytes.from(1, 3)],
            padding_before: kernel.map(|k| bytes.from(0, 2).min(k / 2)),
            padding_after: kernel.map(|k| bytes.from(0, 2).min(k / 2)),
            ceil_mode: i32::from(bytes.below(2)),
            count_include_pad: i32::from(bytes.below(2)),
            ..Extensible::initial()
        };
        if bytes.once_in(3) {
            pool.dilation = [bytes.from(1, 3), bytes.from(1, 2)];
        }
        let is_average = kind % 2 == 1;
        if bytes.once_in(12) {
            let (odd, axis) = (bytes.number(), usize::from(bytes.below(2)));
            match bytes.below(5) {
                0 => pool.stride[axis] = odd,
                1 => pool.dilation[axis] = odd,
                2 => pool.kernel[axis] = odd,
                3 => pool.padding_before[axis] = odd,
                _ => pool.padding_after[axis] = odd,
            }
        }
        let mut output = [-1; 4];
        let place = output.as_mut_ptr();
        // SAFETY: pointers are to live values
        let status =
            self.judged(|| unsafe { tiled_pool2d_output_shape(&raw const pool, input.as_ptr(), place) });
        assert_eq!(status != TILED_STATUS_OK, output == [-1; 4], "status {status}, shape {output:?}");
        self.flaws.is_wrong |= is_average && pool.dilation != [1, 1];

        let (options, dtype, engine) = (self.options(), self.dtype(), self.handle::<tiled_engine>());
        let is_forward = kind < 2;
        let (from, to) = if is_forward { (input, output) } else { (output, input) };
        let x = self.tensor(Role::Read, dtype, from, 0);
        // only the gradient of maximum pooling reads the input as well
        let again = self.has(kind == 2, |state| state.tensor(Role::Read, dtype, input, 5));
        let again = again.as_ref().map_or(null(), std::ptr::from_ref);
        let y = self.tensor(Role::Written, dtype, to, 0);
        let (chosen, pool) = (self.pointer(&options, true), self.pointer(&pool, false));
        let (x, y) = (self.pointer(&x, false), self.pointer(&y, false));
        let written = written(&[y]);
        // SAFETY: as in `convolve`
        let call = |chosen| unsafe {
            match kind {
                0 => tiled_max_pool2d_forward(engine, pool, chosen, x, y),
                1 => tiled_avg_pool2d_forward(engine, pool, chosen, x, y),
                2 => tiled_max_pool2d_backward(engine, pool, chosen, x, again, y),
                _ => tiled_avg_pool2d_backward(engine, pool, chosen, x, y),
            }
        };
        if self.judged_writing(&written, || call(chosen)) == TILED_STATUS_OK && self.bytes.once_in(4) {
            self.assert_same_with_other_tiles(&written, call);
        }
    }
}

/// The tensors that a call writes.
fn written(tensors: &[*const tiled_tensor]) -> Vec<tiled_tensor> {
    // SAFETY: pointers are NULL or to live tensors
    tensors.iter().filter_map(|tensor| unsafe { tensor.as_ref() }).copied().collect()
}
