//! What a name of a model stands for while it is imported.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use prost::bytes::Bytes;
use tiled_graph::{Op, Pad};

use super::computed::Computed;
use super::form::Form;
use super::grid::Grid;
use super::numbers::{Num, Numbers};
use crate::tensor::type_name;

/// What a name of a model stands for.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// A value of the network.
    Image(Image),
    /// An initialiser that nobody has looked at.
    Initialiser(usize),
    /// A constant.
    Constant(Constant),
    /// A constant that was computed of others.
    Computed(Computed),
    /// Sizes, and what is computed of them.
    Numbers(Rc<Numbers>),
    /// Arithmetic that is no operator yet, in the ways that it is a function of one value; at least one.
    Form(Rc<[Form]>),
    /// A value whose channels stand last in the model.
    Last(Last),
    /// A value whose axes stand in another order, in which the batch is not first.
    Permuted(Permuted),
    /// A value in three axes whose channels were joined to groups.
    Grouped(Grouped),
    /// A value whose pixels are one axis, with one beside it, and what it sums up to.
    Lined(Lined),
    /// A step of a norm that a model writes out.
    Norming(Norming),
    /// A step of a local response norm that a model writes out.
    Response(Response),
    /// The elements of a value of one pixel in one list, by its number among what is planned.
    Elements(usize),
    /// Places in such a list.
    Places(Places),
    /// Pixels of an image gathered to windows, a step of adaptive pooling that a model writes out.
    Gathered(Rc<Gathered>),
    /// A value with padding that a convolution may take over.
    Padded(Rc<Padded>),
    /// A value that is reduced over height or width, and waits for the other or for what reads it as it is.
    Halfway(Rc<Halfway>),
    /// Rows and columns beside each other.
    Lanes(Rc<Lanes>),
    /// A value without elements, by its extents: of four, one is zero.
    Empty(Rc<[Num]>),
    /// The first or the last rows or columns of a value of open size.
    End(End),
    /// Where a value is above a number, or where it is not.
    Above(Above),
    /// Whole numbers that are a value of the network.
    Whole(Rc<Whole>),
    /// Whole numbers in a grid of axes.
    Grid(Rc<Grid>),
    /// Sizes in rows.
    Table(Rc<Table>),
    /// Values along an axis of their own.
    Stacked(Rc<Stacked>),
    /// A value whose axes are taken apart for a shuffle.
    Folded(Rc<Folded>),
    /// A value of one channel without its axis, N×H×W.
    Plane(usize),
    /// A value one row high without its height, N×C×W.
    Row(usize),
    /// The results of a node of several.
    Several(Rc<[Value]>),
    /// The branch of a node that is taken, whose outputs are its results.
    Taken(Box<Taken>),
    /// A second result of a node, which is refused where it is read; its position.
    Second(usize),
    /// The result of something that was refused.
    Refused,
}

impl Value {
    /// A value of these extents, where it is one of four axes without elements.
    pub(crate) fn empty(extents: &[Num]) -> Option<Self> {
        let is_empty = extents.len() == 4 && extents.contains(&Num::Known(0.0));
        is_empty.then(|| Self::Empty(extents.into()))
    }

    /// Whether it is of four axes without a channel.
    pub(crate) fn has_no_channels(&self) -> bool {
        match self {
            Self::Empty(extents) => extents.get(1) == Some(&Num::Known(0.0)),
            Self::Constant(constant) => matches!(*constant.shape, [_, 0, _, _]),
            _ => false,
        }
    }

    /// How many axes the model sees, where it is a value of the network whose elements may meet others.
    pub(crate) fn axes(&self) -> Option<usize> {
        match self {
            Self::Image(Image { flat, .. }) | Self::Above(Above { image: Image { flat, .. }, .. }) => {
                Some(if *flat { 2 } else { 4 })
            }
            Self::Form(forms) => forms.first().map(|form| if form.flat { 2 } else { 4 }),
            Self::Plane(_) | Self::Row(_) | Self::Last(Last { order: Order::Joined, .. }) => Some(3),
            Self::Last(_) | Self::Padded(_) | Self::Norming(_) => Some(4),
            _ => None,
        }
    }

    /// What it is, for an error.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Image(Image { flat: false, .. }) => "a batch of images".to_owned(),
            Self::Image(Image { flat: true, .. }) => "a value of two axes".to_owned(),
            Self::Constant(constant) => format!("a constant of shape {:?}", constant.shape),
            Self::Computed(computed) => format!("a constant of shape {:?}", computed.shape),
            Self::Numbers(_) => "computed sizes".to_owned(),
            Self::Form(forms) => match forms.first() {
                Some(Form { operator, node, .. }) => {
                    format!("arithmetic that is no operator ({operator} `{node}`)")
                }
                None => "nothing".to_owned(),
            },
            Self::Last(_) => "a value whose channels are last".to_owned(),
            Self::Permuted(_) => "a value whose axes are in another order".to_owned(),
            Self::Grouped(Grouped { groups, .. }) => format!("a value of {groups} groups of channels"),
            Self::Lined(_) => "a value whose pixels are one axis of four".to_owned(),
            Self::Norming(_) => "a step of a norm over channels".to_owned(),
            Self::Response(_) => "a step of a local response norm".to_owned(),
            Self::Elements(_) => "a list of all elements".to_owned(),
            Self::Places(_) => "places of elements".to_owned(),
            Self::Gathered(gathered) => match gathered.step {
                Gathering::Turned => "a value with the axes of a pixel first".to_owned(),
                _ => "a step of adaptive pooling".to_owned(),
            },
            Self::Padded(_) => "a padded value".to_owned(),
            Self::Halfway(halfway) => {
                let Halfway { operator, name, .. } = &**halfway;
                format!("a value without the axis that it is reduced over ({operator} `{name}`)")
            }
            Self::Lanes(lanes) if lanes.parts.len() > 1 => "rows and columns beside each other".to_owned(),
            Self::Lanes(_) => "a value whose height and width have changed places".to_owned(),
            Self::Empty(_) => "a value without elements".to_owned(),
            Self::End(End { side, axis, .. }) => {
                let lines = if *axis == 2 { "rows" } else { "columns" };
                format!("the {} {lines} of a value of open size", side.name())
            }
            Self::Above(_) => "a comparison of values".to_owned(),
            Self::Whole(whole) => whole.describe(),
            Self::Grid(_) => "whole numbers in a grid".to_owned(),
            Self::Table(_) => "rows of computed sizes".to_owned(),
            Self::Stacked(stacked) => format!("a stack of {} values", stacked.values.len()),
            Self::Folded(_) => "a value of more than four axes".to_owned(),
            Self::Plane(_) => "one channel without its axis".to_owned(),
            Self::Row(_) => "a row of three axes".to_owned(),
            Self::Initialiser(_) | Self::Second(_) | Self::Several(_) | Self::Taken(_) | Self::Refused => {
                "nothing".to_owned()
            }
        }
    }
}

/// A branch of a node that is taken.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    /// The attribute.
    pub(crate) name: &'static str,
    /// Its graph, as bytes of the file.
    pub(crate) graph: Bytes,
}

/// A value of the network: N×C×H×W, or N×C where it has one pixel and its axes were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// Its number among what is planned.
    pub(crate) plan: usize,
    /// Whether the model sees it without height and width.
    pub(crate) flat: bool,
}

/// A constant as the model sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Constant {
    /// Its number among the tensors of the model.
    pub(crate) tensor: usize,
    /// The shape as it is seen.
    pub(crate) shape: Arc<[usize]>,
    /// Whether the tensor is a matrix whose rows are the columns that are seen.
    pub(crate) transposed: bool,
}

impl Constant {
    /// Whether it is a number for each of these channels of a value of four axes, or of two.
    pub(crate) fn is_per_channel(&self, channels: usize, flat: bool) -> bool {
        match (&*self.shape, flat) {
            ([c] | [1, c], true) | ([c, 1, 1] | [1, c, 1, 1], false) => *c == channels,
            _ => false,
        }
    }

    /// The same elements in the same order, seen in another shape; `None` of a transposed matrix.
    pub(crate) fn reshaped(&self, shape: &[usize]) -> Option<Self> {
        (!self.transposed).then(|| Self { shape: shape.into(), ..self.clone() })
    }
}

/// A value whose channels stand last in the model.
#[derive(Clone, Debug)]
pub(crate) struct Last {
    /// What it is with its channels first.
    pub(crate) value: Rc<Value>,
    /// How its other axes stand.
    pub(crate) order: Order,
}

/// How the axes stand of a value whose channels stand last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// N×H×W×C.
    Plain,
    /// N×W×H×C.
    Turned,
    /// N×(H·W)×C.
    Joined,
}

impl Order {
    /// Where the four axes stand once the channels are first; `None` of joined ones.
    pub(crate) const fn places(self) -> Option<[usize; 4]> {
        match self {
            Self::Plain => Some([0, 2, 3, 1]),
            Self::Turned => Some([0, 3, 2, 1]),
            Self::Joined => None,
        }
    }

    /// The place of the channels.
    pub(crate) const fn last(self) -> i64 {
        match self {
            Self::Plain | Self::Turned => 3,
            Self::Joined => 2,
        }
    }
}

/// A value whose axes stand in another order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permuted {
    pub(crate) plan: usize,
    /// Which of the four axes of a batch of images stands at each place.
    pub(crate) order: [usize; 4],
}

/// Images along an axis of their own.
#[derive(Clone, Debug)]
pub(crate) struct Stacked {
    /// The place of the axis.
    pub(crate) axis: i64,
    /// All axes: five, or four of pixels, N×1×R×C for one.
    pub(crate) rank: i64,
    /// Their numbers among what is planned; at least one.
    pub(crate) values: Vec<usize>,
}

impl Stacked {
    /// The axes of a stack of images.
    pub(crate) const OF_IMAGES: i64 = 5;
}

/// A value in three axes, N×G×(C/G·H·W).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grouped {
    pub(crate) plan: usize,
    pub(crate) groups: usize,
}

/// A step of sums over all pixels of a value, each times a weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lined {
    pub(crate) plan: usize,
    pub(crate) axes: Lines,
}

/// Where the axes of such a step stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    /// Channels by pixels, N×1×C×(H·W).
    Rows,
    /// The one channel of the weights, N×1×(H·W)×1.
    Column,
    /// A sum for each channel, N×1×C×1.
    Sums,
}

/// A step towards a norm over the channels of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Norming {
    /// The value x.
    pub(crate) plan: usize,
    pub(crate) step: Step,
}

/// How far a norm has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// The mean of x.
    Mean,
    /// x without it.
    Centred,
    /// The squares of that.
    Squares,
    /// Their mean.
    Variance,
    /// The mean of x².
    MeanSquare,
    /// One of the two with this added.
    Guarded { eps: f64, is_centred: bool },
    /// The root of that.
    Root { eps: f64, is_centred: bool },
}

/// Places of elements, `of_image·n + c` for image n and channel c.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Places {
    pub(crate) of_image: f64,
    /// Whether they have four axes, or that of the images alone.
    pub(crate) has_axes: bool,
    pub(crate) channels: usize,
}

/// A step towards a local response norm of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Response {
    /// The value x.
    pub(crate) plan: usize,
    pub(crate) step: Responding,
}

/// How far a local response norm has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Responding {
    /// The squares of x with an axis before the channels, and channels of zeros before and behind.
    Squares { padding: [i64; 2] },
    /// `(k + α·mean)^β` of the mean over so many channels, with that axis or without it.
    Mean { size: i64, has_axis: bool, alpha: f64, k: f64, beta: Option<f64> },
}

/// A step towards adaptive pooling of a value.
#[derive(Clone, Debug)]
pub(crate) struct Gathered {
    pub(crate) plan: usize,
    pub(crate) step: Gathering,
    /// The row and the column of each pixel of the windows, k×r×l×s×2.
    pub(crate) indices: Option<Constant>,
    /// Which rows and which columns of the windows are filled with zeros.
    pub(crate) masks: [Option<Constant>; 2],
}

/// How far adaptive pooling has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gathering {
    /// The image with the axes of a pixel first, H×W×N×C.
    Turned,
    /// The windows, k×r×l×s×N×C.
    Pixels,
    /// The same, N×C×k×r×l×s.
    Windows,
    /// A row of each.
    Row(usize),
    /// A pixel of each, by its row and column.
    Pixel([usize; 2]),
    /// The sum of so many of its first pixels.
    Sum(usize),
}

/// A value with padding around it.
#[derive(Clone, Debug)]
pub(crate) struct Padded {
    pub(crate) plan: usize,
    pub(crate) pad: Pad,
    /// The node of the model.
    pub(crate) name: String,
    /// The node that pads, once something other than a convolution reads it.
    pub(crate) made: Cell<Option<usize>>,
}

/// A reduction over one of height and width.
#[derive(Clone, Debug)]
pub(crate) struct Halfway {
    pub(crate) plan: usize,
    /// 2 of the height, 3 of the width.
    pub(crate) axis: i64,
    /// Whether the axis is left with one row or column.
    pub(crate) keeps: bool,
    /// The same over both.
    pub(crate) op: Op,
    /// The operator and the node of the model.
    pub(crate) operator: String,
    pub(crate) name: String,
    /// The node that reduces over this axis alone, once something other than the reduction over the other one reads it.
    pub(crate) made: Cell<Option<usize>>,
}

/// Values of one column or one row along the other axis, beside each other.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    /// The axis along which they lie, 2 or 3; the other one has one row or column.
    pub(crate) axis: usize,
    /// At least one.
    pub(crate) parts: Vec<Lane>,
}

/// One of several values beside each other.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    /// An image, or arithmetic over one.
    pub(crate) value: Value,
    /// Whether its height and width have changed places in the model.
    pub(crate) is_turned: bool,
}

/// Rows or columns at one end of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) plan: usize,
    /// 2 of rows, 3 of columns.
    pub(crate) axis: i64,
    pub(crate) side: Side,
    pub(crate) count: i64,
}

/// An end of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    First,
    Last,
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Last => "last",
        }
    }
}

/// The elements of a value that are above a number, or that are not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Above {
    pub(crate) image: Image,
    pub(crate) number: f64,
    /// Whether it holds where the value is above; else where it is at most the number.
    pub(crate) is_above: bool,
}

/// A value of an integer type.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    /// The same as floats.
    pub(crate) value: Rc<Value>,
    /// The least and the most that its elements may be.
    pub(crate) range: [f64; 2],
    /// The number of its type.
    pub(crate) to: i32,
}

impl Whole {
    /// What it is, for an error.
    pub(crate) fn describe(&self) -> String {
        let [least, most] = self.range;
        format!("whole numbers from {least} to {most} ({})", type_name(self.to))
    }
}

/// A value whose axes are taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Folded {
    pub(crate) plan: usize,
    /// The axes behind the batch.
    pub(crate) parts: Vec<Part>,
}

/// A part of an axis that is taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The axis: 1 to 3.
    pub(crate) axis: usize,
    /// The place among the parts of its axis.
    pub(crate) place: usize,
    /// Its extent; `None` of a whole height or width, and of as many blocks as there are.
    pub(crate) extent: Option<i64>,
}

impl Folded {
    /// The same in another order that leaves the batch first.
    pub(crate) fn permuted(&self, order: &[i64]) -> Option<Self> {
        let mut places: Vec<usize> =
            order.iter().map(|axis| usize::try_from(*axis).ok()).collect::<Option<_>>()?;
        let parts = places.iter().skip(1).map(|place| self.parts.get(place.checked_sub(1)?).copied());
        let parts: Vec<Part> = parts.collect::<Option<_>>()?;
        let is_first = places.first() == Some(&0);
        places.sort_unstable();
        let is_order = places.iter().copied().eq(0..=self.parts.len());
        (is_first && is_order).then_some(Self { plan: self.plan, parts })
    }

    /// The axis of each part and its place there.
    pub(crate) fn order(&self) -> Vec<(usize, usize)> {
        self.parts.iter().map(|part| (part.axis, part.place)).collect()
    }

    /// The extents of the parts of an axis that are known, in their order.
    pub(crate) fn extents(&self, axis: usize) -> Vec<i64> {
        let mut parts: Vec<Part> = self.parts.iter().copied().filter(|part| part.axis == axis).collect();
        parts.sort_unstable_by_key(|part| part.place);
        parts.iter().filter_map(|part| part.extent).collect()
    }
}

/// Sizes in rows of as many numbers each.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) rows: Vec<Vec<Num>>,
    pub(crate) is_integer: bool,
}

impl Table {
    /// Columns as rows.
    pub(crate) fn transposed(&self) -> Self {
        let columns = self.rows.first().map_or(0, Vec::len);
        let rows = (0..columns).map(|column| self.rows.iter().map(|row| row[column]).collect()).collect();
        Self { rows, ..*self }
    }
}
