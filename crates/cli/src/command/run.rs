//! `tiled run`: the outputs of a network.

use serde_json::json;
use tiled::exec::Io;
use tiled::graph::{Mode, Objective};
use tiled::tensor::Element;

use crate::args::{DTypeArg, RunArgs};
use crate::error::CliError;
use crate::files::Files;
use crate::job::{Job, changed, changed_json, create_sinks, sink_bytes, wrote};
use crate::progress::Session;
use crate::report::{Figures, print, print_json};

pub(crate) fn run(args: &RunArgs, session: &Session) -> Result<(), CliError> {
    match args.plan.dtype {
        DTypeArg::F32 => run_as::<f32>(args, session),
        DTypeArg::F64 => run_as::<f64>(args, session),
    }
}

fn run_as<T: Element>(args: &RunArgs, session: &Session) -> Result<(), CliError> {
    args.network.reads(Files::default().writes("output", &args.output), args.weights.as_ref()).check()?;
    let mut job = Job::<T>::open(&args.network, &args.plan)?;
    let shapes = job.outputs();
    let sinks = create_sinks::<T>("output", &args.output, &shapes)?;
    let objective = Objective { mode: args.plan.mode(Mode::Eval), ..Objective::inference() };
    let plan = job.plan(&objective, &args.plan.options(job.input_bytes() + sink_bytes(&sinks)), session)?;
    let figures = Figures::new(&plan, 0.0).after_opening(job.files.opening_bytes());
    let mut parameters = job.parameters(&args.network, args.weights.as_ref())?;
    let mut executor = args.plan.executor(plan, &job.backend)?;
    let io =
        Io { inputs: job.sources(), outputs: sinks.iter().map(AsRef::as_ref).collect(), ..Io::default() };
    let report = executor.run(&mut parameters, &io, &session.bar("run"))?;
    let figures = Figures { seconds: report.seconds, ..figures };
    if args.plan.json {
        let mut object = figures.json();
        object.insert("inputs".into(), job.files.json());
        object.insert("outputs".into(), json!(shapes));
        object.insert("pictures".into(), changed_json(&args.output, &sinks));
        return print_json(object);
    }
    job.files.lines().iter().try_for_each(|line| print(line))?;
    print(&figures.text())?;
    args.output.iter().zip(&shapes).try_for_each(|(path, shape)| print(&wrote(path, shape)))?;
    changed(&args.output, &sinks).iter().try_for_each(|line| print(line))
}
