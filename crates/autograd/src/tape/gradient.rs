//! The gradient that a tensor keeps, and who wants to see it.

use std::sync::Arc;

use tiled_tensor::Element;

use crate::error::{Result, TapeError};
use crate::tensor::{Hook, Slot, Tensor};

impl<T: Element> Tensor<T> {
    /// The gradient that backward has added up: of a leaf, or of a result after [`Tensor::retain_grad`]. What is given out does not
    /// change; a later backward adds to a copy.
    #[must_use]
    pub fn grad(&self) -> Option<Self> {
        self.history().with_slot(|slot| slot.grad.clone()).flatten()
    }

    /// Replaces the gradient.
    ///
    /// # Errors
    /// Where this needs none, and where the gradient has another shape or belongs to another context.
    pub fn set_grad(&self, gradient: Option<&Self>) -> Result<()> {
        let operator = "set_grad";
        if let Some(gradient) = gradient {
            if gradient.shape() != self.shape() {
                let (what, expected, got) = ("the gradient", self.shape().into(), gradient.shape().into());
                return Err(TapeError::Shape { operator, what, expected, got });
            }
            if !gradient.context().is(self.context()) {
                return Err(TapeError::Contexts { operator });
            }
        }
        let gradient = gradient.map(Self::detach);
        self.history().with_slot(|slot| slot.grad = gradient).ok_or(TapeError::NoHistory { operator })
    }

    /// Gives the gradient up.
    pub fn zero_grad(&self) {
        self.history().with_slot(|slot| slot.grad = None);
    }

    /// Keeps the gradient of this result when backward comes by.
    ///
    /// # Errors
    /// Where it needs no gradient.
    pub fn retain_grad(&self) -> Result<()> {
        let retained = self.history().with_slot(|slot| slot.retains = true);
        retained.ok_or(TapeError::NoHistory { operator: "retain_grad" })
    }

    /// Calls `hook` with the whole gradient of this value, before it is used or kept; what it returns takes its place. The number that
    /// comes back is for [`Tensor::remove_hook`].
    ///
    /// # Errors
    /// Where it needs no gradient.
    pub fn register_hook(
        &self,
        hook: impl Fn(&Self) -> Result<Option<Self>> + Send + Sync + 'static,
    ) -> Result<u64> {
        let number = self.context().next_node();
        let hook: Hook<T> = Arc::new(hook);
        let registered = self.history().with_slot(|slot| slot.hooks.push((number, hook)));
        registered.map(|()| number).ok_or(TapeError::NoHistory { operator: "register_hook" })
    }

    /// Forgets a hook; whether there was one of this number.
    pub fn remove_hook(&self, number: u64) -> bool {
        let remove = |slot: &mut Slot<T>| {
            let before = slot.hooks.len();
            slot.hooks.retain(|(own, _)| *own != number);
            slot.hooks.len() < before
        };
        self.history().with_slot(remove).unwrap_or(false)
    }
}
