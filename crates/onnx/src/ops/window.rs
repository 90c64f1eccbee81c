//! What convolutions and poolings share: kernel, strides, dilations, and padding in ONNX's ways to say it.

use tiled_graph::PadTarget;

use crate::Reason;
use crate::import::site::Site;

/// The attributes of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    pub(super) kernel: [i64; 2],
    pub(super) stride: [i64; 2],
    pub(super) dilation: [i64; 2],
    pub(super) pads: Pads,
}

/// Padding as it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pads {
    /// Before and after, of height and width.
    Given([[i64; 2]; 2]),
    /// As much as makes the output `⌈n/s⌉`.
    Same(Odd),
}

/// Where the larger half of an odd padding lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Odd {
    /// `SAME_UPPER`.
    After,
    /// `SAME_LOWER`.
    Before,
}

impl Odd {
    /// Before and after of a padding of so much in all.
    pub(super) const fn halves(self, total: i64) -> [i64; 2] {
        match self {
            Self::After => [total / 2, total - total / 2],
            Self::Before => [total - total / 2, total / 2],
        }
    }
}

/// Reads the attributes of a window whose kernel is that of a weight, or stands in the attributes alone.
pub(super) fn windows(site: &Site<'_>, weight: Option<[usize; 2]>) -> Result<Windows, Reason> {
    let given = site.pair("kernel_shape")?;
    let kernel = match (weight.map(signed), given) {
        (Some(kernel), None) => kernel,
        (Some(kernel), Some(given)) if kernel == given => kernel,
        (None, Some(kernel)) => kernel,
        (weight, given) => {
            let expected = if weight.is_some() { "that of the weight" } else { "a height and a width" };
            let got = given.map_or("missing".to_owned(), |given| format!("{given:?}"));
            return Err(Reason::Attribute { name: "kernel_shape", expected, got });
        }
    };
    Ok(Windows {
        kernel,
        stride: site.pair("strides")?.unwrap_or([1, 1]),
        dilation: site.pair("dilations")?.unwrap_or([1, 1]),
        pads: pads(site)?,
    })
}

fn pads(site: &Site<'_>) -> Result<Pads, Reason> {
    let given = site.small_ints("pads")?;
    match site.text("auto_pad", "NOTSET")?.as_str() {
        "NOTSET" => match given.as_deref() {
            None => Ok(Pads::Given([[0; 2]; 2])),
            Some([top, left, bottom, right]) => Ok(Pads::Given([[*top, *bottom], [*left, *right]])),
            Some(got) => {
                let (expected, got) = ("four whole numbers", format!("{got:?}"));
                Err(Reason::Attribute { name: "pads", expected, got })
            }
        },
        "VALID" => Ok(Pads::Given([[0; 2]; 2])),
        "SAME_UPPER" => Ok(Pads::Same(Odd::After)),
        "SAME_LOWER" => Ok(Pads::Same(Odd::Before)),
        got => {
            let expected = "NOTSET, VALID, SAME_UPPER or SAME_LOWER";
            Err(Reason::Attribute { name: "auto_pad", expected, got: got.to_owned() })
        }
    }
}

impl Windows {
    /// What an input of open extents is padded to, half before rounded down, where its padding follows from them; `None` where it
    /// does not, and where the larger half lies before.
    pub(super) fn covered(&self, extents: Option<[usize; 2]>) -> Option<PadTarget> {
        let is_open = extents.is_none() && self.pads == Pads::Same(Odd::After) && self.stride != [1, 1];
        let size =
            [0, 1].map(|axis| self.dilation[axis].saturating_mul(self.kernel[axis] - 1).saturating_add(1));
        is_open.then_some(PadTarget::Windows { size, stride: self.stride })
    }

    /// Before and after, over an input of these extents, where they are known.
    ///
    /// `(⌈n/s⌉ − 1)·s + d·(k − 1) + 1 − n` in all: with a stride of one the size of the input is not in it.
    pub(super) fn padding(&self, extents: Option<[usize; 2]>) -> Result<[[i64; 2]; 2], Reason> {
        let odd = match self.pads {
            Pads::Given(padding) => return Ok(padding),
            Pads::Same(odd) => odd,
        };
        let mut padding = [[0; 2]; 2];
        for axis in 0..2 {
            let (kernel, stride, dilation) = (self.kernel[axis], self.stride[axis], self.dilation[axis]);
            let reach = dilation.checked_mul(kernel - 1).filter(|_| stride > 0 && kernel > 0);
            let Some(reach) = reach else { continue }; // the network refuses these
            let total = match extents.map(signed) {
                _ if stride == 1 => reach,
                Some(extents) => {
                    let last = (extents[axis] - 1) / stride * stride;
                    last + reach + 1 - extents[axis]
                }
                None => return Err(Reason::OpenSize { what: "the padding of auto_pad" }),
            };
            padding[axis] = odd.halves(total.max(0));
        }
        Ok(padding)
    }
}

pub(super) fn signed(extents: [usize; 2]) -> [i64; 2] {
    extents.map(|extent| i64::try_from(extent).unwrap_or(i64::MAX))
}

/// The groups of a convolution.
pub(super) fn group(site: &Site<'_>) -> Result<usize, Reason> {
    let got = site.int("group", 1)?;
    let wrong = |_| Reason::Attribute { name: "group", expected: "at least 1", got: got.to_string() };
    usize::try_from(got).map_err(wrong)
}
