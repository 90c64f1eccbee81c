//! The target of training: class numbers are checked before any work.

use tiled::exec::{Labels, Numbers, Source};
use tiled::tensor::Element;

use crate::args::{LossArg, TrainArgs};
use crate::error::CliError;
use crate::job::Job;

/// Opens the target. Class numbers are as they are, whatever `--numbers` says, and all of them are read once.
pub(super) fn open<T: Element>(args: &TrainArgs, job: &mut Job<T>) -> Result<Box<dyn Source<T>>, CliError> {
    let [batch, classes, height, width] = job.outputs()[0];
    let has_classes = match args.loss {
        LossArg::Mse => false,
        // a picture of colours is no picture of probabilities
        LossArg::CrossEntropy => job.files.inspect(&args.target, Numbers::Classes)?.shape[1] == 1,
    };
    if !has_classes {
        if args.ignore_index.is_some() {
            return Err(CliError::IgnoreIndex);
        }
        return job.files.open("target", &args.target, args.network.numbers.into());
    }
    let source = job.files.open::<T>("target", &args.target, Numbers::Classes)?;
    if source.shape() != [batch, 1, height, width] {
        return Ok(source); // the run says so, with both shapes
    }
    Ok(Box::new(Labels::new::<T>(&args.target.path, source, classes, args.ignore_index)?))
}
