//! What this crate asks of an operator, and what an operator may ask of the network around it.

use serde_json::Value;

use crate::error::{Arity, Axis, Extent, GraphError, Place};
use crate::index::ValueId;
use crate::lower::builder::{Lowering, Site};
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::{MAX_EXTENT, Shapes};

/// What this crate asks of an operator. No method has a default, so that one which forgets an answer does not compile.
pub(crate) trait Operator {
    /// What the network format says of it.
    fn format(&self) -> &'static Format;

    /// The attributes as the format reads them: an object, or null where there are none.
    fn write(&self, values: &dyn Values) -> Value;

    /// Checks what must hold whatever the size of the image; returns the channels of the output.
    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError>;

    /// The height and width of the output; those of the operands are known, and each within [`MAX_EXTENT`].
    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError>;

    /// The parameters over so many input channels.
    fn params(&self, channels: usize) -> Vec<Own>;

    /// Adds the nodes that compute it, and records how its gradient flows ([`Lowering::record`]); returns the node of the output.
    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError>;
}

/// An operator in the network format.
#[derive(Debug)]
pub(crate) struct Format {
    /// The name.
    pub(crate) name: &'static str,
    /// How many operands it takes.
    pub(crate) arity: Arity,
    /// The keys beyond those of every node.
    pub(crate) keys: &'static [&'static str],
}

/// What an operator may know of the values of a network.
pub(crate) trait Values {
    /// The channels of a value.
    fn channels(&self, value: ValueId) -> usize;

    /// The name of a value.
    fn name(&self, value: ValueId) -> &str;

    /// Checks that a value is of the network.
    fn check(&self, place: &Place, value: ValueId) -> Result<(), GraphError>;
}

/// An operator over values of a network.
pub(crate) struct Applied<'a> {
    pub(crate) values: &'a dyn Values,
    pub(crate) operands: &'a [ValueId],
    /// Where an error lies.
    pub(crate) place: Place,
}

impl Applied<'_> {
    /// The channels of the first operand.
    pub(crate) fn channels(&self) -> usize {
        self.values.channels(self.operands[0])
    }

    /// Both extents by a rule for one axis and the first operand's extent along it, which returns `None` where 64 bits do not
    /// hold the extent.
    pub(crate) fn per_axis(
        &self,
        known: &Shapes,
        rule: impl Fn(usize, i64) -> Result<Option<i64>, GraphError>,
    ) -> Result<[usize; 2], GraphError> {
        let input = known.extents(self.operands[0]).map(signed);
        let extent = |position: usize| {
            let (place, axis) = (self.place.clone(), Axis::BOTH[position]);
            match rule(position, input[position])? {
                None => Err(GraphError::ExtentTooLarge { place, axis, got: Extent(None), max: MAX_EXTENT }),
                Some(got) => usize::try_from(got)
                    .ok()
                    .filter(|extent| *extent > 0)
                    .ok_or(GraphError::EmptyOutput { place, axis, got }),
            }
        };
        Ok([extent(0)?, extent(1)?])
    }
}

fn signed(extent: usize) -> i64 {
    i64::try_from(extent).expect("invariant: extents are at most 2^30")
}
