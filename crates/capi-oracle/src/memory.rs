//! The memory that tensors of the calls lie in, and what may change in it.

use std::ffi::c_void;

use tiled_capi::{
    TILED_DTYPE_BF16, TILED_DTYPE_F16, TILED_DTYPE_F32, TILED_DTYPE_F64, TILED_DTYPE_I8, TILED_DTYPE_I16,
    TILED_DTYPE_I32, TILED_DTYPE_U8, TILED_DTYPE_U16, TILED_DTYPE_U32, tiled_tensor,
};

use super::State;
use super::header::Extensible;

/// Words of memory that is read, and of memory that is written.
#[derive(Debug)]
pub(super) struct Arena {
    read: Vec<u64>,
    write: Vec<u64>,
    before: Vec<u64>,
}

/// The words of each; tensors that would be larger are none.
pub(super) const WORDS: usize = 1 << 12;
/// Where small second results lie, past every first one.
pub(super) const SECOND: usize = WORDS - 64;

impl Arena {
    pub(super) fn new() -> Self {
        // two floats in a word are a double of moderate size too
        let small = |i: usize| f32::from(i8::try_from(i % 31).unwrap_or(0) - 15).to_bits();
        let word = |i: usize| u64::from(small(3 * i)) << 32 | u64::from(small(7 * i + 1));
        Self { read: (0..WORDS).map(word).collect(), write: vec![0; WORDS], before: Vec::new() }
    }

    pub(super) fn readable(&self) -> *mut c_void {
        self.read.as_ptr().cast_mut().cast()
    }

    pub(super) fn writable(&mut self) -> *mut c_void {
        self.write.as_mut_ptr().cast()
    }

    pub(super) fn poke(&mut self, word: usize, value: u64) {
        self.read[word % WORDS] = value;
    }

    pub(super) fn remember(&mut self) {
        self.before.clone_from(&self.write);
    }

    /// What was written since, to be written again.
    pub(super) fn take_written(&mut self) -> Vec<u64> {
        let written = self.write.clone();
        self.write.clone_from(&self.before);
        written
    }

    /// Asserts that the same was written as before, where NaN is NaN.
    pub(super) fn assert_same(&self, written: &[u64], tensor: &tiled_tensor) {
        let same = |a: u64, b: u64| match tensor.dtype {
            TILED_DTYPE_F64 => a == b || (f64::from_bits(a).is_nan() && f64::from_bits(b).is_nan()),
            _ => [0, 32].into_iter().all(|shift| {
                #[expect(clippy::cast_possible_truncation, reason = "the two halves of a word")]
                let [a, b] = [a, b].map(|word| (word >> shift) as u32);
                a == b || (f32::from_bits(a).is_nan() && f32::from_bits(b).is_nan())
            }),
        };
        let other = self.write.iter().zip(written).position(|(a, b)| !same(*a, *b));
        assert_eq!(other, None, "another result with other tiles, at this word, in {tensor:?}");
    }

    /// Asserts that nothing but the elements of these tensors has changed since `remember`.
    pub(super) fn assert_only_written(&self, tensors: &[tiled_tensor]) {
        if self.write == self.before {
            return;
        }
        let mut may_change = vec![false; WORDS * 8];
        for tensor in tensors {
            let start = tensor.data.addr() - self.write.as_ptr().addr();
            let size = element_bytes(tensor.dtype);
            for_each_place(tensor, |place| {
                let first = start.wrapping_add_signed(place * size.cast_signed());
                may_change[first..first + size].fill(true);
            });
        }
        let words = self.write.iter().zip(&self.before).enumerate();
        for (word, (after, before)) in words.filter(|(_, (after, before))| after != before) {
            for (byte, (after, before)) in after.to_ne_bytes().iter().zip(before.to_ne_bytes()).enumerate() {
                assert!(*after == before || may_change[8 * word + byte], "word {word} was written");
            }
        }
    }
}

/// The bytes of an element of a type that memory of a run may have.
fn element_bytes(dtype: i32) -> usize {
    match dtype {
        TILED_DTYPE_U8 | TILED_DTYPE_I8 => 1,
        TILED_DTYPE_U16 | TILED_DTYPE_I16 | TILED_DTYPE_F16 | TILED_DTYPE_BF16 => 2,
        TILED_DTYPE_F32 | TILED_DTYPE_U32 | TILED_DTYPE_I32 => 4,
        _ => 8,
    }
}

/// The places of a tensor's elements, relative to the first.
fn for_each_place(tensor: &tiled_tensor, mut visit: impl FnMut(isize)) {
    let stride = |axis: usize| isize::try_from(tensor.strides[axis]).unwrap_or(0);
    let extent = |axis: usize| isize::try_from(tensor.shape[axis]).unwrap_or(0);
    for n in 0..extent(0) {
        for c in 0..extent(1) {
            for y in 0..extent(2) {
                for x in 0..extent(3) {
                    visit(n * stride(0) + c * stride(1) + y * stride(2) + x * stride(3));
                }
            }
        }
    }
}

/// Whether a tensor is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Read,
    Written,
}

impl State<'_> {
    /// A tensor of this shape in the arena, from a word on; now and then one that the library must refuse.
    pub(super) fn tensor(&mut self, role: Role, dtype: i32, shape: [i64; 4], word: usize) -> tiled_tensor {
        let start = match role {
            Role::Read => self.arena.readable(),
            Role::Written => self.arena.writable(),
        };
        let data = start.wrapping_byte_add(word * 8);
        let mut tensor = tiled_tensor { dtype, data, shape, ..Extensible::initial() };
        let room = WORDS - word;
        if !self.lay_out(&mut tensor, room) {
            tensor.data = self.null();
            return tensor;
        }
        if self.bytes.once_in(24) {
            self.spoil(&mut tensor, role);
        }
        tensor
    }

    /// Chooses strides; false where the tensor does not fit the room, and what is written would be anywhere.
    fn lay_out(&mut self, tensor: &mut tiled_tensor, room: usize) -> bool {
        let [n, c, h, w] = tensor.shape;
        if tensor.shape.iter().any(|extent| !(1..=64).contains(extent)) {
            tensor.strides = [1; 4];
            return false;
        }
        let (row, plane) = match self.bytes.below(8) {
            0 => (w + 1, h * (w + 1) + 3),
            1 => (1, h * w), // columns first
            _ => (w, h * w),
        };
        tensor.strides = [c * plane, plane, row, if row == 1 && h > 1 { h } else { 1 }];
        if row == 1 && h == 1 {
            tensor.strides[2] = w;
        }
        let span: i64 =
            tensor.shape.iter().zip(tensor.strides).map(|(extent, stride)| (extent - 1) * stride).sum();
        if usize::try_from(span).is_ok_and(|span| span < room) {
            return true;
        }
        tensor.strides = [c * h * w, h * w, w, 1];
        usize::try_from(n * c * h * w).is_ok_and(|len| len <= room)
    }

    fn spoil(&mut self, tensor: &mut tiled_tensor, role: Role) {
        let axis = usize::from(self.bytes.below(4));
        match self.bytes.below(8) {
            0 => tensor.shape[axis] = self.bytes.choose(&[0, -1, i64::MIN, i64::MAX]),
            1 => tensor.struct_size = u32::from(self.bytes.below(80)),
            2 => tensor.struct_size = self.bytes.choose(&[4097, u32::MAX]),
            3 if element_bytes(tensor.dtype) > 1 => tensor.data = tensor.data.wrapping_byte_add(1),
            4 => tensor.dtype = self.bytes.choose(&[0, 13, -1, i32::MIN]),
            5 if tensor.shape[axis] > 1 => tensor.strides[axis] = self.bytes.choose(&[i64::MAX, i64::MIN]),
            6 if tensor.shape[axis] > 1 && role == Role::Written => tensor.strides[axis] = 0,
            _ => {
                tensor.data = self.null();
                return;
            }
        }
        self.flaws.is_wrong = true;
    }

    pub(super) fn dtype(&mut self) -> i32 {
        match self.bytes.below(32) {
            0..=20 => TILED_DTYPE_F32,
            21..=30 => TILED_DTYPE_F64,
            _ => {
                self.flaws.is_wrong = true;
                self.bytes.choose(&[0, 13, -1, i32::MAX])
            }
        }
    }

    /// The type of memory that a run reads or writes: mostly that of the computation.
    pub(super) fn stored_dtype(&mut self, dtype: i32) -> i32 {
        if self.bytes.once_in(3) { i32::from(self.bytes.below(12)) + TILED_DTYPE_F32 } else { dtype }
    }

    /// Puts something else than a small number where inputs are read.
    pub(super) fn poke(&mut self) {
        if self.bytes.once_in(16) {
            let word = usize::from(self.bytes.byte()) * 3;
            let value = self.bytes.choose(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -0.0]);
            self.arena.poke(word, u64::from(value.to_bits()) << 32 | u64::from(value.to_bits()));
        }
    }
}
