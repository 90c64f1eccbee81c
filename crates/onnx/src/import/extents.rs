//! Extents of values: formulas of those that the image gives.
//!
//! Batch, height and width of an input are what they are; those of other values are `floor((t·e + a)/d)` of another extent e with
//! whole t, a and d ≥ 1, where the operator says so. Formulas of formulas are one formula where that is exact, so equal numbers
//! stand for equal extents whatever the size of the image.

use std::collections::HashMap;

use tiled_tensor::{OutOfMemory, push};

use super::numbers::Num;

/// An extent, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Extent(u32);

/// All extents of a model.
#[derive(Debug)]
pub(crate) struct Extents {
    all: Vec<Entry>,
    of_formulas: HashMap<Formula, Extent>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    formula: Formula,
    /// The number, where the model declares what it depends on.
    known: Option<i64>,
    /// What it is at least, as an image has a row and a column.
    least: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Formula {
    /// What nothing more is said of; its own number keeps it apart from others.
    Itself(u32),
    /// One number for every image.
    Number(i64),
    /// `floor((times·of + plus)/divisor)`.
    Linear { of: Extent, times: i64, plus: i64, divisor: i64 },
}

impl Default for Extents {
    /// The batch alone.
    fn default() -> Self {
        let batch = Entry { formula: Formula::Itself(0), known: None, least: 1 };
        Self { all: vec![batch], of_formulas: HashMap::new() }
    }
}

impl Extents {
    /// The number of images.
    pub(crate) const BATCH: Extent = Extent(0);

    /// Says how many images the model declares.
    pub(crate) fn set_batch(&mut self, batch: i64) {
        self.all[0].known = Some(batch);
    }

    /// One that nothing is said of, but where the model declares it.
    pub(crate) fn itself(&mut self, known: Option<i64>) -> Result<Extent, OutOfMemory> {
        self.entered(Formula::Itself(self.next().0), known, 1)
    }

    /// A number.
    pub(crate) fn number(&mut self, number: i64) -> Result<Extent, OutOfMemory> {
        self.entered(Formula::Number(number), Some(number), number)
    }

    /// `floor((times·of + plus)/divisor)`; `None` where that leaves 64 bits. The divisor is at least one.
    pub(crate) fn linear(
        &mut self,
        of: Extent,
        times: i64,
        plus: i64,
        divisor: i64,
    ) -> Result<Option<Extent>, OutOfMemory> {
        let Some((of, [times, plus, divisor])) = self.simplified(of, [times, plus, divisor]) else {
            return Ok(None);
        };
        if times == 0 {
            return self.number(plus.div_euclid(divisor)).map(Some);
        }
        if [times, plus, divisor] == IDENTITY {
            return Ok(Some(of));
        }
        let at = |extent: i64| Some(extent.checked_mul(times)?.checked_add(plus)?.div_euclid(divisor));
        let known = self.all[of.place()].known.and_then(at);
        let least = if times > 0 { at(self.all[of.place()].least) } else { None };
        let formula = Formula::Linear { of, times, plus, divisor };
        self.entered(formula, known, least.unwrap_or(i64::MIN)).map(Some)
    }

    /// The same formula of what its extent is a formula of, as often as that is exact.
    fn simplified(&self, mut of: Extent, mut formula: [i64; 3]) -> Option<(Extent, [i64; 3])> {
        loop {
            let [times, plus, divisor] = formula;
            let common = gcd(times, divisor);
            // floor((g·t·e + a)/(g·d)) = floor((t·e + floor(a/g))/d)
            formula = [times / common, plus.div_euclid(common), divisor / common];
            let [times, plus, divisor] = formula;
            formula = match self.all[of.place()].formula {
                Formula::Number(number) => [0, times.checked_mul(number)?.checked_add(plus)?, divisor],
                Formula::Linear { of: inner, times: t, plus: a, divisor: 1 } => {
                    of = inner;
                    [times.checked_mul(t)?, times.checked_mul(a)?.checked_add(plus)?, divisor]
                }
                // floor((floor((t·e + a)/d) + b)/c) = floor((t·e + a + b·d)/(c·d))
                Formula::Linear { of: inner, times: t, plus: a, divisor: d } if times == 1 => {
                    of = inner;
                    [t, plus.checked_mul(d)?.checked_add(a)?, divisor.checked_mul(d)?]
                }
                Formula::Linear { .. } | Formula::Itself(_) => return Some((of, formula)),
            };
            if formula[0] == 0 {
                return Some((of, formula));
            }
        }
    }

    /// Where an extent is so many times another: how many.
    pub(crate) fn ratio(&self, of: Extent, to: Extent) -> Option<i64> {
        if of == to {
            return Some(1);
        }
        let (of, to) = (self.line(of)?, self.line(to)?);
        let [ratio, rest] = [of.1.checked_div(to.1)?, of.1.checked_rem(to.1)?];
        let is_multiple = of.0 == to.0 && rest == 0 && to.2.checked_mul(ratio) == Some(of.2);
        is_multiple.then_some(ratio)
    }

    /// A part of an extent that is whole whatever the image.
    pub(crate) fn part(&mut self, of: Extent, divisor: i64) -> Result<Option<Extent>, OutOfMemory> {
        match self.line(of) {
            Some((_, times, plus)) if times % divisor == 0 && plus % divisor == 0 => {
                self.linear(of, 1, 0, divisor)
            }
            _ => Ok(None),
        }
    }

    /// The sum of an extent and so many times another, where one formula says it.
    pub(crate) fn sum(&mut self, a: Extent, times: i64, b: Extent) -> Result<Option<Extent>, OutOfMemory> {
        if a == b {
            return match times.checked_add(1) {
                Some(times) => self.linear(a, times, 0, 1),
                None => Ok(None),
            };
        }
        let both = || {
            let (a, b) = (self.line(a)?, self.line(b)?);
            let sum = |a: i64, b: i64| a.checked_add(b.checked_mul(times)?);
            (a.0 == b.0).then_some((a.0, sum(a.1, b.1)?, sum(a.2, b.2)?))
        };
        match both() {
            Some((of, times, plus)) => self.linear(of, times, plus, 1),
            None => Ok(None),
        }
    }

    /// What it is times what, plus what; `None` where it is rounded.
    fn line(&self, extent: Extent) -> Option<(Extent, i64, i64)> {
        match self.all[extent.place()].formula {
            Formula::Itself(_) => Some((extent, 1, 0)),
            Formula::Linear { of, times, plus, divisor: 1 } => Some((of, times, plus)),
            // rounded, it is what others are multiples of
            Formula::Linear { .. } => Some((extent, 1, 0)),
            Formula::Number(_) => None,
        }
    }

    /// The number, where the model declares what it depends on.
    pub(crate) fn known(&self, extent: Extent) -> Option<i64> {
        self.all[extent.place()].known
    }

    /// What it is at least.
    pub(crate) fn least(&self, extent: Extent) -> i64 {
        self.all[extent.place()].least
    }

    /// As a model computes with it.
    pub(crate) fn num(&self, extent: Extent) -> Num {
        match self.all[extent.place()].formula {
            Formula::Number(number) => Num::Known(number as f64),
            _ => Num::Extent(extent),
        }
    }

    fn next(&self) -> Extent {
        // there are fewer than names, of which there are fewer than this
        Extent(u32::try_from(self.all.len()).unwrap_or(u32::MAX))
    }

    fn entered(&mut self, formula: Formula, known: Option<i64>, least: i64) -> Result<Extent, OutOfMemory> {
        if let Some(extent) = self.of_formulas.get(&formula) {
            return Ok(*extent);
        }
        let extent = self.next();
        push(&mut self.all, Entry { formula, known, least })?;
        if !matches!(formula, Formula::Itself(_)) {
            self.of_formulas.insert(formula, extent);
        }
        Ok(extent)
    }
}

impl Extent {
    const fn place(self) -> usize {
        self.0 as usize
    }
}

/// Extents as they are: one times them, plus nothing.
const IDENTITY: [i64; 3] = [1, 0, 1];

/// The largest number that divides both, of which the second is not zero.
fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (b, a);
    while b != 0 {
        (a, b) = (b, a.wrapping_rem(b));
    }
    a.saturating_abs().max(1)
}
