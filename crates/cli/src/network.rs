//! Networks by name.

use std::io::Read;
use std::path::Path;

use tiled::exec::open_regular;
use tiled::graph::{Graph, builtin_names};

use crate::error::CliError;

/// The built-in network of this name, or the one in this JSON file.
pub(crate) fn load(name: &str) -> Result<Graph, CliError> {
    if let Some(graph) = Graph::try_builtin(name)? {
        return Ok(graph);
    }
    let path = Path::new(name);
    let is_file = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    if !is_file && !path.exists() {
        let known = builtin_names().collect::<Vec<_>>().join(", ");
        return Err(CliError::UnknownNetwork { name: name.to_owned(), known });
    }
    let mut text = String::new();
    let read = open_regular(path)?.read_to_string(&mut text);
    read.map_err(|source| CliError::ReadNetwork { path: path.to_path_buf(), source })?;
    Graph::from_json(&text)
        .map_err(|source| CliError::Network { path: path.to_path_buf(), source: source.into() })
}

/// The file that holds a network, where it is none of the built-in ones.
pub(crate) fn file(name: &str) -> Option<&Path> {
    Graph::builtin(name).is_none().then(|| Path::new(name))
}
