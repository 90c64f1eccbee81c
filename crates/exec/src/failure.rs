//! The first error of the lanes of a sweep, which ends them all.

use std::sync::OnceLock;

use crate::ExecError;

/// What the lanes of a sweep fail with, if they do: the first error is kept, and the other lanes find it before their next call.
#[derive(Debug, Default)]
pub(crate) struct Failure(OnceLock<ExecError>);

impl Failure {
    /// Keeps an error, unless there is one already: a later one may be that of a lane which was stopped.
    pub(crate) fn set(&self, error: ExecError) {
        let _ = self.0.set(error);
    }

    /// Stops a lane where another has failed, with an error that nobody sees.
    pub(crate) fn check(&self) -> Result<(), ExecError> {
        self.0.get().map_or(Ok(()), |_| Err(ExecError::Cancelled))
    }

    /// The first error, once all lanes have ended.
    pub(crate) fn into_result(self) -> Result<(), ExecError> {
        self.0.into_inner().map_or(Ok(()), Err)
    }
}
