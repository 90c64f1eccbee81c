//! What is computed, free of direction: channels, groups, the path taken, and where each weight lies packed.

use tiled_geometry::Window;
use tiled_kernel::{Conv, Kernel};
use tiled_tensor::Element;

use super::class::Class;
use super::cut::MOST_SHARED_PIXELS;
use super::dense::{Sequence, Sharing};
use super::dot;
use super::source::MAX_SPAN;
use crate::{Isa, vector};

/// Which kernels carry out a convolution. Depends on the channels and the instruction set alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Path {
    /// Lanes are output channels of one group; inputs are broadcast.
    Dense,
    /// Lanes are output channels of several groups; inputs are vectors of the same lanes, permuted.
    Lanes,
    /// Lanes are input channels, summed last. Few output channels.
    Dot,
    /// Lanes are pixels of a row; weights are broadcast. Few channels on both sides.
    Planar,
}

/// The most vectors of output channels of a tile of [`Path::Dense`].
const MOST_VECTORS: usize = 2;

/// The fewest columns of a phase: narrower tiles lose more than sharing gains.
const LEAST_OF_PHASE: i64 = 16;

/// The fewest channels that phases are worth: with fewer, the weights of a tile stay in the first level cache, and shorter rows cost more than is gained.
const LEAST_CHANNELS: usize = 128;

/// A convolution or the gradient for its input, as one computation from inputs to outputs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Problem {
    pub(super) conv: Conv,
    pub(super) transposed: bool,
    pub(super) groups: usize,
    /// Input and output channels of a group.
    pub(super) in_group: usize,
    pub(super) out_group: usize,
    /// The extents of the tensor that is read: height, width.
    pub(super) extents: [i64; 2],
    /// Lanes of a vector.
    pub(super) lanes: usize,
    /// Input channels that are summed between two columns of the kernel, or two sequences of them.
    pub(super) run: usize,
    pub(super) path: Path,
    /// The most vectors of output channels of a tile whose taps share broadcasts.
    shared_vectors: usize,
}

impl Problem {
    pub(super) fn new<T: Element>(isa: Isa, conv: &Conv, transposed: bool) -> Self {
        let lanes = vector::lanes::<T>(isa);
        let (x, y) = (conv.in_channels / conv.groups, conv.out_channels / conv.groups);
        let (in_group, out_group) = if transposed { (y, x) } else { (x, y) };
        let blocked = |group: usize| block(lanes, group * conv.groups) > 1;
        let whole = conv.groups > 1
            && lanes.is_multiple_of(out_group)
            && lanes.is_multiple_of(lanes / out_group * in_group)
            && out_group < lanes;
        let path = match (blocked(in_group), blocked(out_group)) {
            (false, false) => Path::Planar,
            (true, true) if whole => Path::Lanes,
            (true, false) if conv.groups == 1 => Path::Dot,
            _ => Path::Dense,
        };
        Self {
            conv: *conv,
            transposed,
            groups: conv.groups,
            in_group,
            out_group,
            extents: if transposed { conv.output } else { conv.input },
            lanes,
            run: if blocked(in_group) { lanes } else { in_group },
            path,
            shared_vectors: match isa {
                Isa::Avx512 => MOST_VECTORS,
                _ => 1,
            },
        }
    }

    /// The gradient for the weights of a convolution, whose sums are kept as the weights of this problem are packed,
    /// with nothing shared.
    pub(super) fn for_weights<T: Element>(isa: Isa, conv: &Conv) -> Self {
        Self { shared_vectors: 0, ..Self::new::<T>(isa, conv, false) }
    }

    pub(super) fn of_kernel<T: Element>(isa: Isa, kernel: &Kernel) -> Self {
        match kernel {
            Kernel::Conv2d { conv, .. } => Self::new::<T>(isa, conv, false),
            Kernel::Conv2dBackwardInput { conv, .. } => Self::new::<T>(isa, conv, true),
            _ => panic!("invariant: {} is not a convolution", kernel.name()),
        }
    }

    /// Whether each output reads the same pixel of the input and no other, in any column and row.
    pub(super) fn reads_one_pixel(&self) -> bool {
        let is_point = |window: Window| (window.kernel(), window.stride(), window.padding()) == (1, 1, 0);
        let same = self.conv.input == self.conv.output;
        self.path != Path::Lanes && same && self.conv.windows.into_iter().all(is_point)
    }

    /// The same over an image of one row.
    pub(super) fn in_one_row(&self, pixels: i64) -> Self {
        let extents = [1, pixels];
        Self { conv: Conv { input: extents, output: extents, ..self.conv }, extents, ..*self }
    }

    /// All output channels.
    pub(super) fn outputs(&self) -> usize {
        self.groups * self.out_group
    }

    /// All input channels.
    pub(super) fn inputs(&self) -> usize {
        self.groups * self.in_group
    }

    /// The extents of the tensor that is written.
    pub(super) fn output_extents(&self) -> [i64; 2] {
        if self.transposed { self.conv.input } else { self.conv.output }
    }

    /// The classes of pixels, rows before columns.
    pub(super) fn classes(&self) -> impl Iterator<Item = [Class; 2]> {
        let [h, w] = self.conv.windows;
        let transposed = self.transposed;
        Class::all(h, transposed)
            .flat_map(move |rows| Class::all(w, transposed).map(move |cols| [rows, cols]))
    }

    /// Whether some outputs belong to no class.
    pub(super) fn leaves_gaps(&self) -> bool {
        self.conv.windows.into_iter().any(|window| Class::leaves_gaps(window, self.transposed))
    }

    /// Vectors of output channels of a group; for [`Path::Lanes`] of all channels, for [`Path::Planar`] channels.
    pub(super) fn vectors(&self) -> usize {
        match self.path {
            Path::Dense => self.out_group.div_ceil(self.lanes),
            Path::Lanes => self.outputs().div_ceil(self.lanes),
            Path::Dot | Path::Planar => self.outputs(),
        }
    }

    /// How the taps of the columns of a class share the broadcasts of their inputs ([`Sequence`]): half the loads or less, of
    /// which one vector of outputs would need one for each multiply-add. Without two vectors it takes three taps to save
    /// any.
    pub(super) fn sharing(&self, cols: &Class) -> Sharing {
        let Ok(stride @ 1..=2) = usize::try_from(cols.stride()) else { return Sharing::None };
        let longest = cols.taps.div_ceil(stride).min(Sequence::MOST_TAPS);
        let span = (MOST_SHARED_PIXELS - 1) * stride + cols.taps;
        let least = if self.shared_vectors == MOST_VECTORS { 2 } else { Sequence::MOST_TAPS };
        let shares = self.path == Path::Dense && self.shared_vectors > 0;
        match (cols.taps, stride) {
            _ if !shares || longest < least || span > MAX_SPAN => Sharing::None,
            (3, 1) if cols.offset_step == 1 || self.has_phases(cols) => Sharing::Triple,
            _ if cols.offset_step != 1 => Sharing::None,
            _ => Sharing::Sequences,
        }
    }

    /// Whether a class of columns whose taps lie apart is taken phase by phase: where pairs of vectors share broadcasts, else tiles would be too few sums.
    fn has_phases(&self, cols: &Class) -> bool {
        let columns = self.output_extents()[1] / (cols.step * cols.phases());
        let in_pairs = self.shared_vectors == MOST_VECTORS && self.vectors() > 1;
        cols.offset_step > 1 && in_pairs && self.in_group >= LEAST_CHANNELS && columns >= LEAST_OF_PHASE
    }

    /// The vectors of output channels of a tile of [`Path::Dense`], which are packed side by side. Two that share
    /// broadcasts want three times two registers for weights, which only AVX-512 has.
    pub(super) fn tile_vectors(&self, cols: &Class) -> usize {
        let most = if self.sharing(cols) == Sharing::None { MOST_VECTORS } else { self.shared_vectors };
        self.vectors().min(most)
    }

    /// The packed elements of the bias, which come first.
    pub(super) fn bias_len(&self) -> usize {
        match self.path {
            Path::Dense => self.groups * self.vectors() * self.lanes,
            Path::Lanes => self.vectors() * self.lanes,
            Path::Dot | Path::Planar => self.outputs(),
        }
    }

    /// Where the bias of an output channel lies packed.
    pub(super) fn bias_at(&self, channel: usize) -> usize {
        match self.path {
            Path::Dense => channel / self.out_group * self.vectors() * self.lanes + channel % self.out_group,
            Path::Lanes | Path::Dot | Path::Planar => channel,
        }
    }

    /// Terms of an output element of a class.
    pub(super) fn terms(&self, [rows, cols]: &[Class; 2]) -> usize {
        rows.taps * cols.taps * self.in_group
    }

    /// The packed elements of the weights of a class.
    pub(super) fn class_len(&self, classes: &[Class; 2]) -> usize {
        match self.path {
            Path::Dot => self.outputs() * self.dot_terms(classes) * self.lanes,
            _ => self.bias_len() * self.terms(classes),
        }
    }

    /// All packed elements: the bias, and the weights of the classes.
    pub(super) fn packed_len(&self) -> usize {
        self.bias_len() + self.classes().map(|classes| self.class_len(&classes)).sum::<usize>()
    }

    /// Vectors of terms of an output element of [`Path::Dot`].
    pub(super) fn dot_terms(&self, [rows, cols]: &[Class; 2]) -> usize {
        rows.taps * cols.taps * self.in_group.div_ceil(self.lanes)
    }

    /// Visits where each weight of a class lies packed and where it lies in OIHW: `visit(packed, weight)`.
    ///
    /// ```text
    ///   Dense   [group][vectors of a tile][kh][run of inputs][kw][input][1 or 2 vectors]
    ///           [group][vectors of a tile][kh][run of inputs][sequence][input][kw][1 or 2 vectors] where taps share broadcasts
    ///   Lanes   [vector][input of the group][kh][kw][lane]
    ///   Dot     [3 outputs][kh][block of inputs][kw][output][lane]
    ///   Planar  [output][kh][input of the group][kw]
    /// ```
    pub(super) fn visit(&self, classes: &[Class; 2], mut visit: impl FnMut(usize, usize)) {
        let [rows, cols] = classes;
        let terms = self.terms(classes);
        match self.path {
            Path::Dense => self.visit_dense(classes, visit),
            Path::Lanes => {
                for o in 0..self.outputs() {
                    for c in 0..self.in_group {
                        for t in 0..rows.taps {
                            for s in 0..cols.taps {
                                let term = (c * rows.taps + t) * cols.taps + s;
                                let packed = (o / self.lanes * terms + term) * self.lanes + o % self.lanes;
                                visit(packed, self.weight(o, c, rows.tap(t), cols.tap(s)));
                            }
                        }
                    }
                }
            }
            Path::Dot => {
                let blocks = self.in_group.div_ceil(self.lanes);
                for o in 0..self.outputs() {
                    let first = o / dot::MAX_OUTPUTS * dot::MAX_OUTPUTS;
                    let outputs = (self.outputs() - first).min(dot::MAX_OUTPUTS);
                    for t in 0..rows.taps {
                        for s in 0..cols.taps {
                            for c in 0..self.in_group {
                                let term = (t * blocks + c / self.lanes) * cols.taps + s;
                                let vector = first * self.dot_terms(classes) + term * outputs + o - first;
                                let weight = self.weight(o, c, rows.tap(t), cols.tap(s));
                                visit(vector * self.lanes + c % self.lanes, weight);
                            }
                        }
                    }
                }
            }
            Path::Planar => {
                for o in 0..self.outputs() {
                    for t in 0..rows.taps {
                        for c in 0..self.in_group {
                            for s in 0..cols.taps {
                                let term = (t * self.in_group + c) * cols.taps + s;
                                visit(o * terms + term, self.weight(o, c, rows.tap(t), cols.tap(s)));
                            }
                        }
                    }
                }
            }
        }
    }

    fn visit_dense(&self, classes: &[Class; 2], mut visit: impl FnMut(usize, usize)) {
        let [rows, cols] = classes;
        let terms = self.terms(classes);
        let tile_vectors = self.tile_vectors(cols);
        // taps that take turns one by one are sequences of one
        let stride = match self.sharing(cols) {
            Sharing::None => cols.taps,
            _ => usize::try_from(cols.stride()).unwrap_or(1),
        };
        // from one output of a group to the next
        let [kh, kw] = self.conv.kernel();
        let step = kh * kw * if self.transposed { 1 } else { self.in_group };
        for group in 0..self.groups {
            for first in (0..self.vectors()).step_by(tile_vectors) {
                let width = (self.vectors() - first).min(tile_vectors) * self.lanes;
                let start = (group * self.vectors() + first) * self.lanes * terms;
                let first = group * self.out_group + first * self.lanes;
                let outputs = ((group + 1) * self.out_group - first).min(width);
                for t in 0..rows.taps {
                    for (begin, len) in self.runs(group) {
                        let begin = begin - group * self.in_group;
                        let mut term = (t * self.in_group + begin) * cols.taps;
                        for sequence in Sequence::all(cols.taps, stride) {
                            for (c, i) in (0..len).flat_map(|c| (0..sequence.taps).map(move |i| (c, i))) {
                                let tap = cols.tap(sequence.first + i * stride);
                                let weight = self.weight(first, begin + c, rows.tap(t), tap);
                                for o in 0..outputs {
                                    visit(start + term * width + o, weight + o * step);
                                }
                                term += 1;
                            }
                        }
                    }
                }
            }
        }
    }

    /// The runs of input channels of a group that lie in one block: first channel and length.
    pub(super) fn runs(&self, group: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (run, end) = (self.run, (group + 1) * self.in_group);
        let mut begin = group * self.in_group;
        std::iter::from_fn(move || {
            let len = (run - begin % run).min(end - begin);
            let item = (begin < end).then_some((begin, len));
            begin += len;
            item
        })
    }

    /// The position in OIHW of the weight from input `c` of the group to output `o` at `[u, v]`.
    fn weight(&self, o: usize, c: usize, u: usize, v: usize) -> usize {
        let [kh, kw] = self.conv.kernel();
        let plane = if self.transposed {
            let group = o / self.out_group;
            (group * self.in_group + c) * self.out_group + o % self.out_group
        } else {
            o * self.in_group + c
        };
        (plane * kh + u) * kw + v
    }
}

/// The channel block of windows with this many channels: a full vector where that wastes at most half of one.
pub(super) const fn block(lanes: usize, channels: usize) -> usize {
    if channels >= 5 && 2 * channels >= lanes { lanes } else { 1 }
}
