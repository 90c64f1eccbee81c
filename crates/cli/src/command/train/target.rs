//! The target of training: its shape and its class numbers are checked before any work.

use tiled::exec::{Labels, Numbers, Source};
use tiled::tensor::Element;

use crate::args::{LossArg, TrainArgs};
use crate::error::CliError;
use crate::job::Job;
use crate::target::Output;
use crate::text::quoted;

/// Opens the target of an output. Class numbers are as they are, whatever `--numbers` says, and all of them are read once.
pub(super) fn open<T: Element>(args: &TrainArgs, job: &mut Job<T>) -> Result<Box<dyn Source<T>>, CliError> {
    let outputs = job.outputs();
    let output = Output::of_loss(&job.output_names, &outputs)?;
    let numbers = match args.loss {
        LossArg::Mse => args.network.numbers.into(),
        // a picture of colours is no picture of probabilities
        LossArg::CrossEntropy => Numbers::Classes,
    };
    let shape = job.files.inspect(&args.target, numbers)?.shape;
    output.check_target(quoted(&args.target.path), shape, args.loss)?;
    let has_classes = matches!(args.loss, LossArg::CrossEntropy) && shape[1] == 1;
    if !has_classes {
        if args.ignore_index.is_some() {
            return Err(CliError::IgnoreIndex);
        }
        return job.files.open("target", &args.target, args.network.numbers.into());
    }
    let source = job.files.open::<T>("target", &args.target, Numbers::Classes)?;
    Ok(Box::new(Labels::new::<T>(&args.target.path, source, output.shape[1], args.ignore_index)?))
}
