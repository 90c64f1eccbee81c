//! A chain of windows along one axis, folded into one.

use crate::{GeometryError, Interval, Window};

/// A sequence of windows along one axis, in the order of the data flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    windows: Vec<Window>,
    composed: Window,
}

impl Chain {
    /// The chain of these windows, first operator first.
    ///
    /// # Errors
    /// Where the composed window overflows 64-bit integers.
    pub fn new(windows: impl IntoIterator<Item = Window>) -> Result<Self, GeometryError> {
        let windows: Vec<Window> = windows.into_iter().collect();
        let composed = windows.iter().try_fold(Window::IDENTITY, |chain, window| chain.then(*window))?;
        Ok(Self { windows, composed })
    }

    /// The windows, first operator first.
    #[must_use]
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// The whole chain as one window.
    #[must_use]
    pub const fn composed(&self) -> Window {
        self.composed
    }

    /// Inputs of the chain that its outputs `[a,b)` read, before clipping.
    #[must_use]
    pub fn receptive(&self, outputs: Interval) -> Interval {
        self.windows.iter().rev().fold(outputs, |wanted, window| window.receptive(wanted))
    }

    /// Outputs of the chain that read any of its inputs `[a,b)`, before clipping.
    #[must_use]
    pub fn touched(&self, inputs: Interval) -> Interval {
        self.windows.iter().fold(inputs, |wanted, window| window.touched(wanted))
    }
}
