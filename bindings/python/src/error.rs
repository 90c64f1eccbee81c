//! Errors of the library as exceptions of `tiled.errors`.

use pyo3::prelude::*;
use tiled::device::DeviceChoiceError;
use tiled::exec::{ExecError, IoError};
use tiled::graph::{GraphError, PlanError};
use tiled::network::NetworkError;

/// The classes of `tiled.errors`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Class {
    /// Whatever is none of the others.
    Error,
    /// A network that there is not, or that an image does not fit.
    Network,
    /// A budget that no plan keeps to.
    Budget,
}

/// An exception with this text.
pub(crate) fn raise(class: Class, text: String) -> PyErr {
    let name = match class {
        Class::Error => "Error",
        Class::Network => "NetworkError",
        Class::Budget => "BudgetError",
    };
    Python::attach(|py| match py.import("tiled.errors").and_then(|module| module.getattr(name)) {
        Ok(class) => match class.call1((text,)) {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        },
        Err(error) => error,
    })
}

/// An error of the library.
#[derive(Debug)]
pub(crate) enum Failure {
    Network(NetworkError),
    Exec(ExecError),
    Device(DeviceChoiceError),
    /// What Python code raised.
    Raised(PyErr),
    /// What is wrong with the arguments.
    Argument(String),
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Network(error) => raise(Class::Network, error.to_string()),
            Failure::Exec(ExecError::Graph(error) | ExecError::Plan(PlanError::Graph(error))) => {
                raise(Class::Network, error.to_string())
            }
            Failure::Exec(ExecError::Plan(
                error @ (PlanError::BudgetTooSmall { .. } | PlanError::MemoryTooSmall { .. }),
            )) => raise(Class::Budget, error.to_string()),
            Failure::Exec(error) => raise(Class::Error, error.to_string()),
            Failure::Device(error) => raise(Class::Error, error.to_string()),
            Failure::Raised(error) => error,
            Failure::Argument(text) => raise(Class::Error, text),
        }
    }
}

macro_rules! through {
    ($($error:ty => $variant:ident),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::$variant(error.into())
            }
        }
    )*};
}

through!(
    NetworkError => Network,
    GraphError => Exec,
    PlanError => Exec,
    IoError => Exec,
    ExecError => Exec,
    DeviceChoiceError => Device,
    PyErr => Raised
);
