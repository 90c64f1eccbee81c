//! How much memory a plan may take, and who says so.

mod system;

use super::PlanOptions;

/// As [`PlanOptions::memory_bytes`]: a run may take any amount.
///
/// ```
/// use tiled_graph::{BudgetSource, PlanOptions, UNLIMITED};
/// let options = PlanOptions { memory_bytes: Some(UNLIMITED), ..PlanOptions::default() };
/// assert_eq!(options.budget().source, BudgetSource::Unlimited);
/// ```
pub const UNLIMITED: u64 = u64::MAX;

/// The most bytes that a run may take, and who says so.
///
/// ```
/// use tiled_graph::{BudgetSource, PlanOptions};
/// let given = PlanOptions { memory_bytes: Some(64 << 20), ..PlanOptions::default() }.budget();
/// assert_eq!((given.bytes, given.source), (64 << 20, BudgetSource::Given));
/// let had = PlanOptions::default().budget(); // what can be had now
/// assert!(had.is_default() && had.limit().is_some());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The bytes; [`UNLIMITED`] for any.
    pub bytes: u64,
    /// Who says so.
    pub source: BudgetSource,
}

/// Who says how much memory a run may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BudgetSource {
    /// The caller, by [`PlanOptions::memory_bytes`].
    Given,
    /// The caller, who sets no limit: [`UNLIMITED`].
    Unlimited,
    /// The memory of the machine that is free or can be freed.
    FreeMemory,
    /// The memory that a control group of the process, a container's for one, has left.
    ControlGroup,
    /// What the limit of the process's addresses leaves, `ulimit -v`.
    AddressSpace,
    /// What the limit of the process's data leaves, `ulimit -d`.
    DataSize,
    /// What the machine may still promise where it promises no more than it has.
    Commitment,
    /// Nobody: a number for systems that do not say what is free.
    Assumed,
}

impl BudgetSource {
    /// The name, of few words.
    ///
    /// ```
    /// assert_eq!(tiled_graph::BudgetSource::ControlGroup.name(), "control group");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Unlimited => "unlimited",
            Self::FreeMemory => "free memory",
            Self::ControlGroup => "control group",
            Self::AddressSpace => "address space",
            Self::DataSize => "data size",
            Self::Commitment => "commit limit",
            Self::Assumed => "assumed",
        }
    }
}

impl Budget {
    /// No limit.
    pub(super) const UNLIMITED: Self = Self { bytes: UNLIMITED, source: BudgetSource::Unlimited };

    /// The most bytes; `None` for any.
    #[must_use]
    pub const fn limit(&self) -> Option<u64> {
        match self.source {
            BudgetSource::Unlimited => None,
            _ => Some(self.bytes),
        }
    }

    /// Whether the caller said nothing, so that the budget is what can be had.
    #[must_use]
    pub const fn is_default(&self) -> bool {
        !matches!(self.source, BudgetSource::Given | BudgetSource::Unlimited)
    }
}

impl PlanOptions {
    /// The memory that these options let a plan take: what they say, or [`Budget::available`] now.
    #[must_use]
    pub fn budget(&self) -> Budget {
        match self.memory_bytes {
            None => Budget::available(self.parallelism),
            Some(UNLIMITED) => Budget::UNLIMITED,
            Some(bytes) => Budget { bytes, source: BudgetSource::Given },
        }
    }
}
