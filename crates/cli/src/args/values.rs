//! The values of arguments.

use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use tiled::graph::{Hold, StepDetail};

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum HoldArg {
    Auto,
    Slide,
    Recompute,
    Materialise,
}

impl From<HoldArg> for Hold {
    fn from(hold: HoldArg) -> Self {
        match hold {
            HoldArg::Auto => Self::Auto,
            HoldArg::Slide => Self::Slide,
            HoldArg::Recompute => Self::Recompute,
            HoldArg::Materialise => Self::Materialise,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DTypeArg {
    F32,
    F64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ModeArg {
    Train,
    Eval,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LossArg {
    Mse,
    CrossEntropy,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PlanLossArg {
    None,
    Sum,
    Mse,
    CrossEntropy,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OptimizerArg {
    Sgd,
    Adamw,
}

/// Two numbers written `AxB`: height before width, rows before columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair<N>(pub(crate) [N; 2]);

pub(super) fn pair<N: FromStr + PartialOrd + Default>(text: &str) -> Result<Pair<N>, String> {
    let numbers = numbers::<N>(text).filter(|numbers| numbers.iter().all(|number| *number > N::default()));
    match numbers.map(<[N; 2]>::try_from) {
        Some(Ok(pair)) => Ok(Pair(pair)),
        _ => Err("wants two whole numbers above 0 such as 256x512".to_owned()),
    }
}

pub(super) fn shape(text: &str) -> Result<[usize; 4], String> {
    match numbers::<usize>(text).as_deref() {
        Some([c, h, w]) => Ok([1, *c, *h, *w]),
        Some([n, c, h, w]) => Ok([*n, *c, *h, *w]),
        _ => Err("wants a shape CxHxW or NxCxHxW such as 3x1024x2048".to_owned()),
    }
}

/// A tensor of which a plan wants to know the shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Planned {
    /// The shape, NCHW.
    Shape([usize; 4]),
    /// The file that a run would read.
    File(PathBuf),
}

/// What consists of numbers and crosses is a shape; everything else is a file.
pub(super) fn planned(text: &str) -> Result<Planned, String> {
    let is_shape = |c: char| c.is_ascii_digit() || matches!(c, 'x' | 'X' | '×' | ' ');
    if text.chars().all(is_shape) {
        shape(text).map(Planned::Shape)
    } else {
        Ok(Planned::File(PathBuf::from(text)))
    }
}

pub(super) fn steps(text: &str) -> Result<StepDetail, String> {
    match text {
        "all" => Ok(StepDetail::All),
        number => {
            number.parse().map(StepDetail::First).map_err(|_| "wants a whole number or `all`".to_owned())
        }
    }
}

fn numbers<N: FromStr>(text: &str) -> Option<Vec<N>> {
    text.split(['x', 'X', '×']).map(|part| part.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::{Pair, Planned, pair, planned, shape, steps};
    use tiled::graph::StepDetail;

    #[test]
    fn pairs_and_shapes_are_whole_numbers_between_crosses() {
        assert_eq!(pair::<i64>("16x32"), Ok(Pair([16, 32])));
        assert!(pair::<i64>("16").is_err() && pair::<i64>("0x3").is_err() && pair::<i64>("-1x3").is_err());
        assert_eq!(shape("3x4x5"), Ok([1, 3, 4, 5]));
        assert_eq!(shape("2x3x4x5"), Ok([2, 3, 4, 5]));
        assert!(
            shape("4x5").is_err()
                && shape("3x4x5x6x7").is_err()
                && shape("3x4x99999999999999999999").is_err()
        );
    }

    #[test]
    fn r06_what_is_planned_is_a_shape_or_a_file() {
        assert_eq!(planned("3x4x5"), Ok(Planned::Shape([1, 3, 4, 5])));
        assert_eq!(planned("x.npy"), Ok(Planned::File("x.npy".into())));
        assert!(planned("4x5").is_err() && planned("").is_err());
    }

    #[test]
    fn steps_are_a_number_or_all() {
        assert_eq!(steps("all"), Ok(StepDetail::All));
        assert_eq!(steps("7"), Ok(StepDetail::First(7)));
        assert!(steps("-1").is_err() && steps("some").is_err());
    }
}
