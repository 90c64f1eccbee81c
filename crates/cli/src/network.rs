//! The files that networks come from.

use std::path::Path;

use tiled::graph::Graph;

/// The file that holds a network, where it is none of the built-in ones.
pub(crate) fn file(name: &str) -> Option<&Path> {
    Graph::builtin(name).is_none().then(|| Path::new(name))
}
