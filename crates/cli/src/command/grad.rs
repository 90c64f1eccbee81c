//! `tiled grad`: gradients with respect to inputs and weights.

use serde_json::json;
use tiled::exec::{ConstantSource, Executor, Io, Source, open_source, save_weights};
use tiled::graph::{Mode, Objective, ParamTensor, params};
use tiled::tensor::Element;

use crate::args::{DTypeArg, GradArgs};
use crate::error::CliError;
use crate::job::{Job, check_count, create_sinks, sink_bytes, wrote};
use crate::progress::Session;
use crate::report::{Figures, print, print_json};

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
    let (job, mut parameters) = Job::<T>::open(&args.network, &args.weights)?;
    let grad_outputs = open_gradients::<T>(&args.grad_output, &job.outputs())?;
    let input_shapes: Vec<[usize; 4]> = job.inputs.iter().map(Source::shape).collect();
    let sinks = if args.grad_input.is_empty() {
        Vec::new()
    } else {
        create_sinks::<T>("grad-input", &args.grad_input, &input_shapes)?
    };
    let objective = Objective {
        mode: args.plan.mode(Mode::Train),
        grad_inputs: !sinks.is_empty(),
        grad_params: args.grad_weights.is_some(),
        ..Objective::gradients()
    };
    let given: u64 = grad_outputs.iter().map(|source| source.resident_bytes()).sum();
    let plan =
        job.plan(&objective, &args.plan.options(job.input_bytes() + given + sink_bytes(&sinks)), session)?;
    let figures = Figures::new(&plan, 0.0);
    let mut executor = args.plan.executor(plan, &job.backend)?;
    let io = Io {
        inputs: job.sources(),
        grad_outputs: grad_outputs.iter().map(AsRef::as_ref).collect(),
        grad_inputs: sinks.iter().map(AsRef::as_ref).collect(),
        ..Io::default()
    };
    let report = executor.run(&mut parameters, &io, &session.bar("gradients"))?;
    let figures = Figures { seconds: report.seconds, ..figures };
    if let Some(path) = &args.grad_weights {
        save_weights(path, &weight_gradients(&job, &executor)?)?;
    }
    if args.plan.json {
        let mut object = figures.json();
        object.insert("grad_inputs".into(), json!(if sinks.is_empty() { &[] } else { &input_shapes[..] }));
        return print_json(object);
    }
    print(&figures.text())?;
    for (path, shape) in args.grad_input.iter().zip(&input_shapes) {
        print(&wrote(path, shape))?;
    }
    args.grad_weights.iter().try_for_each(|path| print(&wrote(path, &[])))
}

/// The gradients with respect to the outputs, each from a file or all ones.
fn open_gradients<T: Element>(
    given: &[String],
    shapes: &[[usize; 4]],
) -> Result<Vec<Box<dyn Source<T>>>, CliError> {
    if let [only] = given
        && only == "ones"
    {
        let ones = |shape: &[usize; 4]| ConstantSource::ones(*shape).map(|source| Box::new(source) as _);
        return Ok(shapes.iter().map(ones).collect::<Result<_, _>>()?);
    }
    check_count("grad-output", shapes.len(), given.len())?;
    let open = |(path, shape): (&String, &[usize; 4])| match path.as_str() {
        "ones" => ConstantSource::ones(*shape).map(|source| Box::new(source) as _),
        path => open_source(path),
    };
    Ok(given.iter().zip(shapes).map(open).collect::<Result<_, _>>()?)
}

fn weight_gradients<T: Element>(
    job: &Job<T>,
    executor: &Executor<'_, T>,
) -> Result<Vec<ParamTensor<T>>, CliError> {
    let mut tensors = Vec::new();
    for (place, spec) in params(&job.graph).into_iter().enumerate() {
        if let Some(gradient) = executor.gradient(place) {
            tensors.push(ParamTensor::new(&spec.name, spec.shape, gradient.to_vec())?);
        }
    }
    Ok(tensors)
}
