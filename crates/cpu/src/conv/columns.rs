//! How the outputs of a class of columns are taken by [`Path::Dense`] where its taps lie far apart: phase by phase, or in parts that leave out taps.

use tiled_geometry::{Interval, div_ceil};

use super::class::Class;
use super::dense::Sharing;
use super::problem::{Path, Problem};

/// Outputs of a class of columns, and what they read.
///
/// A whole class is one part; so is each of its phases, in which taps that lie apart share broadcasts; and so are neighbours that have the same taps
/// outside the image, which are left out: multiplied by zeros, they would be half of the work of a small image under a large dilation.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnPart {
    /// The class or its phase, whose inputs are every `apart`-th column of the image from `first` on, so many of them.
    pub(super) class: Class,
    pub(super) first: i64,
    pub(super) apart: i64,
    pub(super) width: i64,
    /// The outputs, and the first and the end of the taps that are not left out.
    pub(super) members: Interval,
    pub(super) taps: [usize; 2],
}

/// The fewest columns of neighbours that leave out taps of their own.
const LEAST_OF_NEIGHBOURS: i64 = 8;

impl ColumnPart {
    /// All of a class.
    pub(super) fn whole(problem: &Problem, class: Class) -> Self {
        Self {
            class,
            first: 0,
            apart: 1,
            width: problem.extents[1],
            members: class.members(Interval::whole(problem.output_extents()[1])),
            taps: [0, class.taps],
        }
    }

    /// The parts of a class of columns, and how many they are. They depend on the whole image, so that every tiling of it gives the same sums.
    pub(super) fn all(problem: &Problem, class: Class) -> (impl Iterator<Item = Self>, usize) {
        let sharing = problem.sharing(&class);
        let whole = Self::whole(problem, class);
        let phases = if class.offset_step > 1 && sharing == Sharing::Triple { class.phases() } else { 0 };
        let alone = problem.path == Path::Dense && sharing == Sharing::None;
        let shortest = || whole.neighbours().map(|part| part.members.len()).min();
        let is_cut = alone && shortest() >= Some(LEAST_OF_NEIGHBOURS);
        let uncut = (!is_cut && phases == 0).then_some(whole);
        let neighbours = whole.neighbours().take_while(move |_| is_cut);
        let phases = (0..phases).map(move |number| Self::phase(problem, class, number));
        let parts = uncut.into_iter().chain(neighbours).chain(phases);
        (parts.clone(), parts.count())
    }

    fn phase(problem: &Problem, class: Class, number: i64) -> Self {
        let (phase, first, apart) = class.phase(number);
        let width = div_ceil(problem.extents[1] - first, apart);
        Self { first, apart, width, ..Self::whole(problem, phase) }
    }

    /// Its outputs by the taps that they leave out.
    fn neighbours(self) -> impl Iterator<Item = Self> + Clone {
        let mut at = self.members.begin();
        std::iter::from_fn(move || {
            let (begin, end) = (at, self.members.end());
            at = self.class.same_taps(begin, end, self.width);
            let (first, past) = self.class.taps_inside(begin, self.width);
            (begin < end).then(|| Self { members: Interval::new(begin, at), taps: [first, past], ..self })
        })
    }
}
