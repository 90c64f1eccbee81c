//! Why a candidate has no numbers.

use tiled_tensor::OutOfMemory;

use super::PlanError;
use crate::GraphError;

/// Why a candidate has no numbers.
#[derive(Debug)]
pub(super) enum Unmeasured {
    /// It would take more work to measure than there is left for it.
    TooLong,
    /// It fits in no memory.
    TooLarge(PlanError),
    /// Nobody waits for the plan any more.
    Cancelled,
    /// Memory was refused.
    Refused(OutOfMemory),
}

impl From<OutOfMemory> for Unmeasured {
    fn from(error: OutOfMemory) -> Self {
        Self::Refused(error)
    }
}

impl From<PlanError> for Unmeasured {
    /// Memory that is refused is no property of the candidate: passed over, it would change which plan is found.
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Graph(GraphError::OutOfMemory { bytes, .. }) => Self::Refused(OutOfMemory { bytes }),
            error => Self::TooLarge(error),
        }
    }
}

impl From<Unmeasured> for PlanError {
    fn from(unmeasured: Unmeasured) -> Self {
        match unmeasured {
            Unmeasured::Cancelled => Self::Cancelled,
            Unmeasured::TooLarge(error) => error,
            Unmeasured::TooLong => Self::TooLarge,
            Unmeasured::Refused(error) => error.into(),
        }
    }
}
