//! What can be wrong with a network.

/// A network that cannot be built. Grows with the checks.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// Two nodes, or a node and an input, share a name.
    #[error("the name `{name}` is used twice")]
    DuplicateName {
        /// The name.
        name: String,
    },
}
