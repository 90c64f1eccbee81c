//! `tiled run`: the outputs of a network.

use serde_json::json;
use tiled::exec::Io;
use tiled::graph::{Mode, Objective, PlanOptions};
use tiled::tensor::Element;

use crate::args::{DTypeArg, RunArgs};
use crate::error::CliError;
use crate::files::Files;
use crate::job::{Job, changed, changed_json, output_sinks, sink_bytes, wrote};
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
    let outputs = (args.output.as_slice(), job.output_names.as_slice());
    let sinks = output_sinks::<T>(outputs, &shapes, &args.written, args.plan.picture_bytes())?;
    let objective = Objective { mode: args.plan.mode(Mode::Eval), ..Objective::inference() };
    let options = args.plan.options(&job.backend, job.input_bytes() + sink_bytes(&sinks))?;
    let transfer_bytes =
        sinks.iter().map(|sink| sink.transfer_bytes()).fold(options.transfer_bytes, u64::max);
    let plan =
        job.plan(&objective, &PlanOptions { transfer_bytes, releases_parameters: true, ..options }, session)?;
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
        object.insert("remarks".into(), json!(job.files.remarks()));
        object.insert("outputs".into(), json!(shapes));
        object.insert("changed".into(), changed_json(&args.output, &sinks));
        return print_json(object);
    }
    job.files.lines().iter().try_for_each(|line| print(line))?;
    print(&figures.text())?;
    let written =
        |shape: &[usize; 4]| args.written.decision().map_or(*shape, |decided| decided.shape(*shape));
    args.output.iter().zip(&shapes).try_for_each(|(path, shape)| print(&wrote(path, &written(shape))))?;
    changed(&args.output, &sinks).iter().try_for_each(|line| print(line))
}
