//! The values of arguments.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueEnum;
use tiled::exec::{ElementType, Numbers};
use tiled::explain::StepDetail;
use tiled::graph::Hold;

use crate::error::CliError;

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

impl OptimizerArg {
    /// Refuses a momentum that the optimiser would not heed.
    pub(crate) fn check_momentum(self, momentum: f64) -> Result<(), CliError> {
        match self {
            Self::Adamw if momentum != 0.0 => Err(CliError::Momentum),
            Self::Adamw | Self::Sgd => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum NumbersArg {
    /// Integers of 8 and 16 bits without a sign become 0 to 1, in pictures and arrays alike.
    #[default]
    Scaled,
    /// Integers are the numbers that they are.
    AsIs,
}

impl From<NumbersArg> for Numbers {
    fn from(numbers: NumbersArg) -> Self {
        match numbers {
            NumbersArg::Scaled => Self::Scaled,
            NumbersArg::AsIs => Self::AsIs,
        }
    }
}

/// The type of the elements of a file that is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ElementArg {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

impl From<ElementArg> for ElementType {
    fn from(element: ElementArg) -> Self {
        match element {
            ElementArg::U8 => Self::U8,
            ElementArg::I8 => Self::I8,
            ElementArg::U16 => Self::U16,
            ElementArg::I16 => Self::I16,
            ElementArg::U32 => Self::U32,
            ElementArg::I32 => Self::I32,
            ElementArg::U64 => Self::U64,
            ElementArg::I64 => Self::I64,
            ElementArg::F16 => Self::F16,
            ElementArg::Bf16 => Self::Bf16,
            ElementArg::F32 => Self::F32,
            ElementArg::F64 => Self::F64,
        }
    }
}

/// A file that is read: a path, of a raw file with what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileArg {
    pub(crate) path: PathBuf,
    /// The shape of a raw file, and the type of its elements where it is not that of the computation.
    pub(crate) raw: Option<([usize; 4], Option<ElementType>)>,
}

impl FileArg {
    /// A path, or `FILE.raw:CxHxW` and `FILE.raw:CxHxW:TYPE`.
    pub(crate) fn parse(path: PathBuf) -> Result<Self, String> {
        let is_raw = |path: &Path| {
            path.extension()
                .is_some_and(|kind| kind.eq_ignore_ascii_case("raw") || kind.eq_ignore_ascii_case("bin"))
        };
        let Some(text) = path.to_str().filter(|_| !path.exists()) else {
            return Ok(Self { path, raw: None });
        };
        let parts: Vec<&str> = text.rsplitn(3, ':').collect();
        let (file, size, element) = match parts[..] {
            [element, size, file] if is_raw(Path::new(file)) => (file, size, Some(element)),
            [size, ..] if is_raw(Path::new(&text[..text.len() - (size.len() + 1).min(text.len())])) => {
                (&text[..text.len() - size.len() - 1], size, None)
            }
            _ => return Ok(Self { path, raw: None }),
        };
        let element = element.map(|name| {
            let known = ElementType::ALL.into_iter().find(|element| element.name() == name);
            known.ok_or_else(|| {
                let names = ElementType::ALL.map(ElementType::name).join(", ");
                format!("`{name}` is no element type, known are {names}")
            })
        });
        Ok(Self { path: PathBuf::from(file), raw: Some((shape(size)?, element.transpose()?)) })
    }
}

impl AsRef<Path> for FileArg {
    fn as_ref(&self) -> &Path {
        &self.path
    }
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
    File(FileArg),
}

/// What consists of numbers and crosses is a shape; everything else is a file.
pub(super) fn planned(given: PathBuf) -> Result<Planned, String> {
    let is_shape = |c: char| c.is_ascii_digit() || matches!(c, 'x' | 'X' | '×' | ' ');
    match given.to_str() {
        Some(text) if text.chars().all(is_shape) => shape(text).map(Planned::Shape),
        _ => FileArg::parse(given).map(Planned::File),
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
    use super::{FileArg, Pair, Planned, pair, planned, shape, steps};
    use tiled::exec::ElementType;
    use tiled::explain::StepDetail;

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
        let planned = |text: &str| planned(text.into());
        assert_eq!(planned("3x4x5"), Ok(Planned::Shape([1, 3, 4, 5])));
        assert_eq!(planned("x.npy"), Ok(Planned::File(FileArg { path: "x.npy".into(), raw: None })));
        assert!(planned("4x5").is_err() && planned("").is_err());
    }

    #[test]
    fn r07_raw_files_are_named_with_their_shape_and_type() {
        let parse = |text: &str| FileArg::parse(text.into());
        let file = |path: &str, raw| Ok(FileArg { path: path.into(), raw });
        assert_eq!(parse("no/x.npy"), file("no/x.npy", None));
        assert_eq!(parse("no/x.raw"), file("no/x.raw", None));
        assert_eq!(parse("no/x.raw:3x4x5"), file("no/x.raw", Some(([1, 3, 4, 5], None))));
        let bytes = Some(([2, 3, 4, 5], Some(ElementType::U8)));
        assert_eq!(parse("no/a:b.BIN:2x3x4x5:u8"), file("no/a:b.BIN", bytes));
        assert_eq!(parse("no/a:b.png"), file("no/a:b.png", None));
        assert!(parse("no/x.raw:3x4").is_err() && parse("no/x.raw:3x4x5:u9").is_err());
    }

    #[test]
    fn steps_are_a_number_or_all() {
        assert_eq!(steps("all"), Ok(StepDetail::All));
        assert_eq!(steps("7"), Ok(StepDetail::First(7)));
        assert!(steps("-1").is_err() && steps("some").is_err());
    }
}
