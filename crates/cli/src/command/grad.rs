//! `tiled grad`: gradients with respect to inputs and weights.

use std::path::Path;

use serde_json::json;
use tiled::exec::{ConstantSource, Executor, Io, Numbers, Reservation, Source, WeightRef, save_weights};
use tiled::graph::{Graph, Mode, Objective, try_params};
use tiled::tensor::Element;

use crate::args::{DTypeArg, FileArg, GradArgs};
use crate::error::CliError;
use crate::files::{Files, weights_bytes};
use crate::job::{Job, changed, changed_json, check_count, create_sinks, sink_bytes, wrote};
use crate::opened::OpenedFiles;
use crate::progress::Session;
use crate::report::{Figures, print, print_json};
use crate::target::Output;
use crate::text::quoted;

pub(crate) fn run(args: &GradArgs, session: &Session) -> Result<(), CliError> {
    match args.plan.dtype {
        DTypeArg::F32 => run_as::<f32>(args, session),
        DTypeArg::F64 => run_as::<f64>(args, session),
    }
}

fn run_as<T: Element>(args: &GradArgs, session: &Session) -> Result<(), CliError> {
    if args.grad_input.is_empty() && args.grad_weights.is_none() {
        return Err(CliError::NoResult);
    }
    let given =
        args.grad_output.iter().map(|file| file.path.as_path()).filter(|path| path.as_os_str() != "ones");
    let files = Files::default().reads("grad-output", given);
    let files = files.writes("grad-input", &args.grad_input).writes("grad-weights", &args.grad_weights);
    args.network.reads(files, args.weights.as_ref()).check()?;
    let mut job = Job::<T>::open(&args.network, &args.plan)?;
    let shapes = job.outputs();
    let numbers = args.network.numbers.into();
    let outputs = job.output_names.iter().zip(&shapes).map(|(name, shape)| Output { name, shape: *shape });
    let outputs: Vec<Output<'_>> = outputs.collect();
    let grad_outputs = open_gradients::<T>(&args.grad_output, &outputs, numbers, &mut job.files)?;
    let objective = args.wanted.of(Objective {
        mode: args.plan.mode(Mode::Train),
        grad_inputs: !args.grad_input.is_empty(),
        grad_params: args.grad_weights.is_some(),
        ..Objective::gradients()
    });
    let wanted = objective.input_grads(&job.graph)?.into_iter().map(|place| job.inputs[place].shape());
    let wanted: Vec<[usize; 4]> = wanted.collect();
    let sinks = create_sinks::<T>("grad-input", &args.grad_input, &wanted, args.plan.picture_bytes())?;
    let given: u64 = grad_outputs.iter().map(|source| source.resident_bytes()).sum();
    let plan = job.plan(
        &objective,
        &args.plan.options(&job.backend, job.input_bytes() + given + sink_bytes(&sinks))?,
        session,
    )?;
    let specs = try_params(&job.graph)?;
    let trained = objective.param_grads(&job.graph)?.into_iter().map(|place| &specs[place]);
    let bytes = weights_bytes(trained.map(|spec| (spec.name.as_str(), spec.elements())), size_of::<T>());
    let place = args.grad_weights.as_ref().map(|path| Reservation::new(path, bytes)).transpose()?;
    let figures = Figures::new(&plan, 0.0).after_opening(job.files.opening_bytes());
    let mut parameters = job.parameters(&args.network, args.weights.as_ref())?;
    let mut executor = args.plan.executor(plan, &job.backend)?;
    let io = Io {
        inputs: job.sources(),
        grad_outputs: grad_outputs.iter().map(AsRef::as_ref).collect(),
        grad_inputs: sinks.iter().map(AsRef::as_ref).collect(),
        ..Io::default()
    };
    let report = executor.run(&mut parameters, &io, &session.bar("gradients"))?;
    let figures = Figures { seconds: report.seconds, ..figures };
    drop(place);
    if let Some(path) = &args.grad_weights {
        save_weight_gradients(path, &job.graph, &executor)?;
    }
    if args.plan.json {
        let mut object = figures.json();
        object.insert("inputs".into(), job.files.json());
        object.insert("remarks".into(), json!(job.files.remarks()));
        object.insert("changed".into(), changed_json(&args.grad_input, &sinks));
        object.insert("grad_inputs".into(), json!(wanted));
        return print_json(object);
    }
    job.files.lines().iter().try_for_each(|line| print(line))?;
    print(&figures.text())?;
    for (path, shape) in args.grad_input.iter().zip(&wanted) {
        print(&wrote(path, shape))?;
    }
    changed(&args.grad_input, &sinks).iter().try_for_each(|line| print(line))?;
    args.grad_weights.iter().try_for_each(|path| print(&wrote(path, &[])))
}

/// The gradients with respect to the outputs, each from a file or all ones.
fn open_gradients<T: Element>(
    given: &[FileArg],
    outputs: &[Output<'_>],
    numbers: Numbers,
    files: &mut OpenedFiles,
) -> Result<Vec<Box<dyn Source<T>>>, CliError> {
    if let [only] = given
        && only.path.as_os_str() == "ones"
    {
        let ones =
            |output: &Output<'_>| ConstantSource::ones(output.shape).map(|source| Box::new(source) as _);
        return Ok(outputs.iter().map(ones).collect::<Result<_, _>>()?);
    }
    check_count("grad-output", outputs.len(), given.len())?;
    let mut open = |(file, output): (&FileArg, &Output<'_>)| {
        if file.path.to_str() == Some("ones") {
            return Ok(Box::new(ConstantSource::ones(output.shape)?) as _);
        }
        output.check_gradient(quoted(&file.path), files.inspect(file, numbers)?.shape)?;
        files.open("gradient", file, numbers)
    };
    given.iter().zip(outputs).map(&mut open).collect()
}

/// Writes the gradients from where the executor holds them.
fn save_weight_gradients<T: Element>(
    path: &Path,
    graph: &Graph,
    executor: &Executor<'_, T>,
) -> Result<(), CliError> {
    let specs = try_params(graph)?;
    let gradients = specs.iter().enumerate().filter_map(|(place, spec)| {
        let data = executor.gradient(place)?;
        Some(WeightRef { name: &spec.name, shape: &spec.shape, data })
    });
    Ok(save_weights(path, gradients)?)
}
