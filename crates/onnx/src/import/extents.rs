//! Extents of values: formulas of those that the image gives.
//!
//! Batch, height and width of an input are what they are. What layers and models make of one of them by sums, whole factors,
//! quotients rounded down and remainders is a function f of that extent e that repeats: for some period P and rise R,
//! `f(e + P) = f(e) + R` for every e. So a list of P numbers says all of f, two functions are equal for every image where these
//! lists are, and each has one number.

use std::collections::HashMap;
use std::rc::Rc;

use tiled_tensor::{OutOfMemory, collected, push};

/// An extent, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Extent(u32);

/// All extents of a model.
#[derive(Debug)]
pub(crate) struct Extents {
    all: Vec<Entry>,
    of_formulas: HashMap<Formula, Extent>,
    /// The numbers that may still be worked out.
    left: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    formula: Formula,
    /// The number, where the model declares what it depends on.
    known: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Formula {
    /// What nothing more is said of; its own number keeps it apart from others.
    Itself(u32),
    /// One number for every image.
    Number(i64),
    /// A function of what nothing more is said of.
    Repeating { of: Extent, repeating: Repeating },
}

/// `f(P·q + r) = values[r] + q·rise`, with P values, which have no shorter period.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Repeating {
    values: Rc<[i64]>,
    rise: i64,
}

/// The longest period of a function: strides and multiples of networks are far below.
const MAX_PERIOD: usize = 1 << 12;

/// The numbers that are worked out for a model, however many nodes it has: then nothing more is said of what comes.
const MAX_NUMBERS: usize = 1 << 24;

impl Default for Extents {
    /// The batch alone.
    fn default() -> Self {
        let batch = Entry { formula: Formula::Itself(0), known: None };
        Self { all: vec![batch], of_formulas: HashMap::new(), left: MAX_NUMBERS }
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
        self.entered(Formula::Itself(self.next().0), known)
    }

    /// A number.
    pub(crate) fn number(&mut self, number: i64) -> Result<Extent, OutOfMemory> {
        self.entered(Formula::Number(number), Some(number))
    }

    /// `floor((times·of + plus)/divisor)`; `None` where that leaves 64 bits or its period is too long. The divisor is at least one.
    pub(crate) fn linear(
        &mut self,
        of: Extent,
        times: i64,
        plus: i64,
        divisor: i64,
    ) -> Result<Option<Extent>, OutOfMemory> {
        if [times, plus, divisor] == IDENTITY {
            return Ok(Some(of));
        }
        let (root, function) = self.function(of);
        let made = function.rise.checked_mul(times).and_then(|rise| {
            let repeats = divisor / gcd(rise, divisor);
            let rise = i64::try_from(i128::from(rise) * i128::from(repeats) / i128::from(divisor)).ok()?;
            let period = self.granted(function.values.len().checked_mul(usize::try_from(repeats).ok()?)?)?;
            let value = |extent: usize| {
                let value = function.at(i64::try_from(extent).ok()?)?;
                Some(value.checked_mul(times)?.checked_add(plus)?.div_euclid(divisor))
            };
            Some(((0..period).map(value).collect::<Option<Vec<i64>>>()?, rise))
        });
        self.repeating(root, made)
    }

    /// An extent and so many times another; `None` where no formula of one extent says it.
    pub(crate) fn sum(&mut self, a: Extent, times: i64, b: Extent) -> Result<Option<Extent>, OutOfMemory> {
        let Some((root, a, b)) = self.of_one(a, b) else { return Ok(None) };
        let made = a.shared_period(&b).and_then(|period| self.granted(period)).and_then(|period| {
            let value = |extent: i64| a.at(extent)?.checked_add(b.at(extent)?.checked_mul(times)?);
            let period = i64::try_from(period).ok()?;
            let rise = value(period)?.checked_sub(value(0)?)?;
            Some(((0..period).map(value).collect::<Option<Vec<i64>>>()?, rise))
        });
        self.repeating(root, made)
    }

    /// What is left of an extent by a divisor of at least one: `e − d·floor(e/d)`.
    pub(crate) fn rest(&mut self, of: Extent, divisor: i64) -> Result<Option<Extent>, OutOfMemory> {
        match (self.linear(of, 1, 0, divisor)?, divisor.checked_neg()) {
            (Some(quotient), Some(times)) => self.sum(of, times, quotient),
            _ => Ok(None),
        }
    }

    /// The least multiple of a divisor of at least one that is not below an extent.
    pub(crate) fn multiple(&mut self, of: Extent, divisor: i64) -> Result<Option<Extent>, OutOfMemory> {
        match self.linear(of, 1, divisor - 1, divisor)? {
            Some(count) => self.linear(count, divisor, 0, 1),
            None => Ok(None),
        }
    }

    /// What an extent becomes where it is held between two numbers; `None` where no formula says it: where it grows past one of
    /// them.
    pub(crate) fn held(
        &mut self,
        of: Extent,
        [least, most]: [i64; 2],
    ) -> Result<Option<Extent>, OutOfMemory> {
        let (root, function) = self.function(of);
        if function.rise == 0 {
            let made = self
                .granted(function.values.len())
                .map(|_| (function.values.iter().map(|value| (*value).max(least).min(most)).collect(), 0));
            return self.repeating(root, made);
        }
        Ok(match self.bounds(of) {
            (low, high) if low >= least && (most == i64::MAX || high.is_some_and(|high| high <= most)) => {
                Some(of)
            }
            (_, Some(high)) if high <= least => Some(self.number(least.min(most))?),
            (low, _) if low >= most => Some(self.number(most)?),
            _ => None,
        })
    }

    /// The rows that `⌈e/s⌉` windows of so many rows at a stride of s cover, `(⌈e/s⌉ − 1)·s + rows`, where that is more than e, else
    /// e; a stride of at least one.
    pub(crate) fn windows(
        &mut self,
        of: Extent,
        rows: i64,
        stride: i64,
    ) -> Result<Option<Extent>, OutOfMemory> {
        let (Some(above), Some(more)) = (self.multiple(of, stride)?, rows.checked_sub(stride)) else {
            return Ok(None);
        };
        let Some(missing) = self.sum(above, -1, of)? else { return Ok(None) };
        let Some(missing) = self.linear(missing, 1, more, 1)? else { return Ok(None) };
        match self.held(missing, [0, i64::MAX])? {
            Some(missing) => self.sum(of, 1, missing),
            None => Ok(None),
        }
    }

    /// How much an extent grows until another has gone through its values once; `None` where they depend on two.
    pub(crate) fn rise_in_period(&self, of: Extent, repeating: Extent) -> Option<i64> {
        let (_, of, repeating) = self.of_one(of, repeating)?;
        let period = i64::try_from(of.shared_period(&repeating)?).ok()?;
        of.at(period)?.checked_sub(of.at(0)?)
    }

    /// Where an extent is so many times another: how many.
    pub(crate) fn ratio(&self, of: Extent, to: Extent) -> Option<i64> {
        if of == to {
            return Some(1);
        }
        let (_, of, to) = self.of_one(of, to)?;
        let period = i64::try_from(of.shared_period(&to)?).ok()?;
        let pairs = || (0..=period).map(|extent| Some((of.at(extent)?, to.at(extent)?)));
        let ratio = pairs().find_map(|pair| pair.filter(|(_, to)| *to != 0).map(|(of, to)| of / to))?;
        pairs().all(|pair| pair.is_some_and(|(of, to)| to.checked_mul(ratio) == Some(of))).then_some(ratio)
    }

    /// A part of an extent that is whole whatever the image.
    pub(crate) fn part(&mut self, of: Extent, divisor: i64) -> Result<Option<Extent>, OutOfMemory> {
        let (_, function) = self.function(of);
        let is_whole = |value: &i64| value.rem_euclid(divisor) == 0;
        if function.values.iter().chain([&function.rise]).all(is_whole) {
            self.linear(of, 1, 0, divisor)
        } else {
            Ok(None)
        }
    }

    /// The number, where the model declares what it depends on.
    pub(crate) fn known(&self, extent: Extent) -> Option<i64> {
        self.all[extent.place()].known
    }

    /// What it is at least and, where it does not grow, at most, as an image has a row and a column.
    pub(crate) fn bounds(&self, extent: Extent) -> (i64, Option<i64>) {
        let (_, function) = self.function(extent);
        let first = (1..).take(function.values.len()).map(|extent| function.at(extent));
        let Some(first) = first.collect::<Option<Vec<i64>>>() else { return (i64::MIN, None) };
        let least = first.iter().copied().min().filter(|_| function.rise >= 0).unwrap_or(i64::MIN);
        (least, first.iter().copied().max().filter(|_| function.rise <= 0))
    }

    /// The number that it is for every image, where it is one.
    pub(crate) fn constant(&self, extent: Extent) -> Option<i64> {
        match self.all[extent.place()].formula {
            Formula::Number(number) => Some(number),
            _ => None,
        }
    }

    /// What an extent is a function of, nothing where it is a number, and the function.
    fn function(&self, extent: Extent) -> (Option<Extent>, Repeating) {
        match &self.all[extent.place()].formula {
            Formula::Itself(_) => (Some(extent), Repeating { values: [0].into(), rise: 1 }),
            Formula::Number(number) => (None, Repeating { values: [*number].into(), rise: 0 }),
            Formula::Repeating { of, repeating } => (Some(*of), repeating.clone()),
        }
    }

    /// Two extents as functions of the one that they depend on; `None` where they depend on two.
    fn of_one(&self, a: Extent, b: Extent) -> Option<(Option<Extent>, Repeating, Repeating)> {
        let ((of_a, a), (of_b, b)) = (self.function(a), self.function(b));
        (of_a.is_none() || of_b.is_none() || of_a == of_b).then_some((of_a.or(of_b), a, b))
    }

    /// So many numbers, where a function may have them and the model as many still.
    fn granted(&mut self, numbers: usize) -> Option<usize> {
        self.left = self.left.checked_sub(numbers).filter(|_| numbers <= MAX_PERIOD)?;
        Some(numbers)
    }

    /// The extent that a function of another is.
    fn repeating(
        &mut self,
        of: Option<Extent>,
        made: Option<(Vec<i64>, i64)>,
    ) -> Result<Option<Extent>, OutOfMemory> {
        let Some((values, rise)) = made else { return Ok(None) };
        let period = shortest(&values, rise);
        let rise = rise / i64::try_from(values.len() / period).unwrap_or(1);
        let values = &values[..period];
        match (of, values) {
            (Some(of), [0]) if rise == 1 => return Ok(Some(of)),
            (_, [number]) if rise == 0 => return self.number(*number).map(Some),
            _ => {}
        }
        // what depends on nothing has one value and no rise
        let Some(of) = of else { return Ok(None) };
        let repeating = Repeating { values: collected(values.iter().copied())?.into(), rise };
        let known = self.known(of).and_then(|extent| repeating.at(extent));
        self.entered(Formula::Repeating { of, repeating }, known).map(Some)
    }

    fn next(&self) -> Extent {
        // there are fewer than names, of which there are fewer than this
        Extent(u32::try_from(self.all.len()).unwrap_or(u32::MAX))
    }

    fn entered(&mut self, formula: Formula, known: Option<i64>) -> Result<Extent, OutOfMemory> {
        if let Some(extent) = self.of_formulas.get(&formula) {
            return Ok(*extent);
        }
        let extent = self.next();
        if !matches!(formula, Formula::Itself(_)) {
            self.of_formulas.insert(formula.clone(), extent);
        }
        push(&mut self.all, Entry { formula, known })?;
        Ok(extent)
    }
}

impl Repeating {
    fn at(&self, extent: i64) -> Option<i64> {
        let period = i64::try_from(self.values.len()).ok()?;
        let value = self.values[usize::try_from(extent.rem_euclid(period)).ok()?];
        value.checked_add(extent.div_euclid(period).checked_mul(self.rise)?)
    }

    /// A period of both.
    fn shared_period(&self, other: &Self) -> Option<usize> {
        let (a, b) = (i64::try_from(self.values.len()).ok()?, i64::try_from(other.values.len()).ok()?);
        usize::try_from((a / gcd(a, b)).checked_mul(b)?).ok()
    }
}

/// The shortest period of a function that has these values in one period and rises by so much.
fn shortest(values: &[i64], rise: i64) -> usize {
    let len = values.len();
    let is_period = |period: &usize| {
        let parts = i64::try_from(len / period).unwrap_or(i64::MAX);
        len.is_multiple_of(*period) && rise % parts == 0 && {
            let step = rise / parts;
            let follows = |(value, next): (&i64, &i64)| value.checked_add(step) == Some(*next);
            values.iter().zip(&values[*period..]).all(follows)
        }
    };
    (1..len).find(is_period).unwrap_or(len)
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
