//! The order in which a tile's rows are computed: one engine for whole tiles and for sliding windows.
//!
//! A tile is a *stream*: every node owns an interval of rows and computes it from the top in bands. One
//! terminal, the driver, is advanced band by band; a node is asked for rows only when a consumer wants them, a
//! band at a time, so that a step advances layer by layer. Reductions and sinks take rows as soon as their
//! operands have them. With a band as tall as the tile every node is computed in one call: a classic tile.
//!
//! Nothing is computed twice within a tile, and a node holds the rows from the first one that a consumer still
//! needs to the last one computed.

use tiled_geometry::{Interval, MAX_COORDINATE};

use crate::demand::{Demand, needed};
use crate::program::Program;
use crate::sweep::{Action, Sweep};

/// One call of a kernel: compute, load, write or reduce these rows of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The node, by its place in the sweep.
    pub place: usize,
    /// The rows.
    pub rows: Interval,
    /// The first row of the node that its window must still hold after the call.
    pub low: i64,
}

/// Runs the rows of one tile in order.
#[derive(Clone, Debug)]
pub struct Schedule<'a> {
    program: &'a Program,
    sweep: &'a Sweep,
    rows: &'a Demand,
    bands: Vec<i64>,
    done: Vec<i64>,
    driver: Option<usize>,
}

impl<'a> Schedule<'a> {
    /// The schedule of a tile whose nodes need `rows`, in bands of `band` rows of the tallest node.
    #[must_use]
    pub fn new(program: &'a Program, sweep: &'a Sweep, rows: &'a Demand, band: i64) -> Self {
        let extent = |place: usize| program.nodes[sweep.nodes[place].node].extents[0];
        let tallest = (0..sweep.nodes.len()).map(extent).max().unwrap_or(1).max(1);
        let bands = (0..sweep.nodes.len()).map(|place| scaled_band(band, extent(place), tallest)).collect();
        let done = (0..sweep.nodes.len()).map(|place| rows.interval(place).begin()).collect();
        let terminals = (0..sweep.nodes.len()).filter(|place| sweep.nodes[*place].is_terminal());
        let driver = terminals.max_by_key(|place| (rows.interval(*place).len(), *place));
        Self { program, sweep, rows, bands, done, driver }
    }

    /// The number of steps: bands of the driver.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.driver.map_or(0, |driver| {
            let bands = tiled_geometry::div_ceil(self.rows.interval(driver).len(), self.bands[driver]);
            bands.unsigned_abs().max(1)
        })
    }

    /// Carries out all calls in order, and `step` after each step.
    ///
    /// # Errors
    /// The first error of a call or a step, after which nothing more is called.
    pub fn run<E>(
        mut self,
        mut call: impl FnMut(Call) -> Result<(), E>,
        mut step: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(driver) = self.driver else { return Ok(()) };
        let whole = self.rows.interval(driver);
        let terminals: Vec<usize> = (0..self.sweep.nodes.len())
            .filter(|place| *place != driver && self.sweep.nodes[*place].is_terminal())
            .collect();
        while self.done[driver] < whole.end() {
            let target = (self.done[driver] + self.bands[driver]).min(whole.end());
            self.advance(driver, target, &mut call)?;
            for &terminal in &terminals {
                // terminals off the driver's path keep pace, so that nothing waits for them to the end
                let own = self.rows.interval(terminal);
                let share = proportion(own.len(), target - whole.begin(), whole.len());
                self.advance(terminal, own.begin() + share, &mut call)?;
            }
            step()?;
        }
        for terminal in terminals {
            self.advance(terminal, self.rows.interval(terminal).end(), &mut call)?;
        }
        Ok(())
    }

    /// Computes the rows of a node up to `target`, a band at a time, each with what it needs.
    fn advance<E>(
        &mut self,
        place: usize,
        target: i64,
        call: &mut impl FnMut(Call) -> Result<(), E>,
    ) -> Result<(), E> {
        let target = self
            .computed(place, Interval::new(self.done[place], target))
            .end()
            .min(self.rows.interval(place).end());
        while self.done[place] < target {
            let begin = self.done[place];
            let band = self.computed(place, Interval::new(begin, (begin + self.bands[place]).min(target)));
            let sweep = self.sweep;
            // the last operand first: it may ask an earlier one, a shortcut, for more rows than this node does, which are
            // then one call and not two; and so on for what is before them
            let operands = || sweep.nodes[place].operands.iter().copied().zip(0..);
            let mut asked = (usize::MAX, 0);
            while let Some((operand, which)) = operands().filter(|next| *next < asked).max() {
                asked = (operand, which);
                let rows = needed(self.program, sweep, place, which, 0, band);
                if !rows.is_empty() {
                    self.advance(operand, rows.end(), call)?;
                }
            }
            if self.done[place] != begin {
                continue; // a terminal that took its rows as soon as an operand had them
            }
            self.emit(place, band, call)?;
            for &(consumer, _) in &sweep.nodes[place].consumers {
                if sweep.nodes[consumer].is_terminal() {
                    self.take_available(consumer, call)?;
                }
            }
        }
        Ok(())
    }

    /// The rows that a node computes where it is asked for these: whole cells of its kernel's grain.
    fn computed(&self, place: usize, rows: Interval) -> Interval {
        let node = &self.sweep.nodes[place];
        match node.action {
            Action::Compute => self.program.nodes[node.node].computed(0, rows),
            _ => rows,
        }
    }

    fn emit<E>(
        &mut self,
        place: usize,
        rows: Interval,
        call: &mut impl FnMut(Call) -> Result<(), E>,
    ) -> Result<(), E> {
        // rows between the windows of a stride may serve nobody, but are computed all the same
        let low = self.low(place).min(rows.begin());
        self.done[place] = rows.end();
        call(Call { place, rows, low })
    }

    /// Lets a terminal take whole bands (or its last rows) that its operands already hold.
    fn take_available<E>(
        &mut self,
        place: usize,
        call: &mut impl FnMut(Call) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            let begin = self.done[place];
            let band = Interval::new(begin, (begin + self.bands[place]).min(self.rows.interval(place).end()));
            let is_available = !band.is_empty()
                && self.sweep.nodes[place].operands.iter().enumerate().all(|(which, operand)| {
                    let rows = needed(self.program, self.sweep, place, which, 0, band);
                    rows.is_empty() || rows.end() <= self.done[*operand]
                });
            if !is_available {
                return Ok(());
            }
            self.emit(place, band, call)?;
        }
    }

    /// The first row that a consumer still needs; the rows done where none does.
    fn low(&self, place: usize) -> i64 {
        let mut low = i64::MAX;
        for &(consumer, which) in &self.sweep.nodes[place].consumers {
            let rest = Interval::new(self.done[consumer], self.rows.interval(consumer).end());
            let rows = needed(self.program, self.sweep, consumer, which, 0, rest);
            if !rows.is_empty() {
                low = low.min(rows.begin());
            }
        }
        low
    }
}

/// A band of the tallest node carried over to a node of this extent, at least one row.
pub(crate) fn scaled_band(band: i64, extent: i64, tallest: i64) -> i64 {
    let scaled = i128::from(band) * i128::from(extent) / i128::from(tallest);
    i64::try_from(scaled).unwrap_or(MAX_COORDINATE).clamp(1, MAX_COORDINATE)
}

/// `floor(len·part/whole)` for `part <= whole`.
fn proportion(len: i64, part: i64, whole: i64) -> i64 {
    let share = i128::from(len) * i128::from(part) / i128::from(whole);
    i64::try_from(share).expect("invariant: a share of an interval is at most its length")
}
