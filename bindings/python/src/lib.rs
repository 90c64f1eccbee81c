//! What the Python module `tiled` is made of: networks, plans and their runs, over arrays of Python.
//!
//! The public names are in `tiled/*.py`, which give arrays four axes and results their memory; here arrays are borrowed, files are opened,
//! and a run is watched so that Ctrl-C ends it.

mod array;
mod error;
mod kept;
mod network;
mod operand;
mod options;
mod parts;
mod plan;
mod training;
mod watch;

use pyo3::prelude::*;

/// The extension module.
#[pymodule]
fn _tiled(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<network::Network>()?;
    module.add_class::<plan::Plan>()?;
    module.add_class::<training::Training>()?;
    module.add_class::<training::Half>()?;
    module.add_function(wrap_pyfunction!(network::parse_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(network::output_element, module)?)?;
    module.add_function(wrap_pyfunction!(network::builtin_names, module)?)?;
    Ok(())
}
