//! `tiled plan`: what a run will do, without running it.

use std::io::{BufWriter, Write};
use std::time::Instant;

use serde::Serialize;
use serde_json::{Map, Value, json};
use tiled::bytes;
use tiled::device::DeviceFigures;
use tiled::exec::{
    AdamW, AdamWOptions, Numbers, Optimizer, Sgd, SgdOptions, sink_resident_bytes, write_whole,
};
use tiled::explain::{Description, Explain, StepDetail};
use tiled::graph::{
    BudgetSource, Graph, Loss, Mode, Objective, Plan, PlanOptions, Planner, TRANSFER_BYTES, infer_nchw,
    try_params,
};
use tiled::kernel::Backend;
use tiled::network::Network;
use tiled::tensor::{Element, TensorError};

use crate::args::{DTypeArg, LossArg, OptimizerArg, PlanCommandArgs, PlanLossArg, Planned};
use crate::error::CliError;
use crate::files::Files;
use crate::job::{check_names, kept_bytes};
use crate::network;
use crate::opened::OpenedFiles;
use crate::progress::Session;
use crate::report::{Figures, print, show_budget};
use crate::target::Output;
use crate::text::{EscapedJson, quoted};

pub(crate) fn run(args: &PlanCommandArgs, session: &Session) -> Result<(), CliError> {
    Files::default().reads("net", network::file(&args.net)).writes("svg", &args.svg).check()?;
    let begin = Instant::now();
    let Planning { plan, mut notes, files, device } = match args.plan.dtype {
        DTypeArg::F32 => plan::<f32>(args, session)?,
        DTypeArg::F64 => plan::<f64>(args, session)?,
    };
    let figures = Figures::new(&plan, begin.elapsed().as_secs_f64()).after_opening(files.opening_bytes());
    if let Some(path) = &args.svg {
        let drawing = match plan.budget.source {
            BudgetSource::Given => plan.to_svg_within(plan.budget.bytes),
            _ => plan.to_svg(),
        };
        write_whole(path, drawing.as_bytes())?;
    }
    if !args.plan.json {
        let mut text = plan.to_text();
        notes.extend(device.iter().flat_map(device_lines));
        for line in std::iter::once(show_budget(plan.budget)).chain(notes) {
            text.push('\n');
            text.push_str(&line);
        }
        return print(&text);
    }
    let all = plan.sweeps.iter().all(|sweep| sweep.steps <= LISTED_STEPS);
    let detail = args.steps.unwrap_or(if all { StepDetail::All } else { StepDetail::First(LISTED_STEPS) });
    let mut figures = figures.json();
    figures.insert("inputs".into(), files.json());
    figures.insert("remarks".into(), json!(files.remarks()));
    figures.insert("device".into(), device.as_ref().map_or(Value::Null, device_json));
    let report = Report { figures, plan: plan.describe(detail) };
    let mut output = BufWriter::new(std::io::stdout().lock());
    report
        .serialize(&mut serde_json::Serializer::with_formatter(&mut output, EscapedJson))
        .map_err(std::io::Error::from)
        .and_then(|()| writeln!(output))
        .and_then(|()| output.flush())
        .map_err(|source| CliError::Stdout { source })
}

/// The JSON object: the figures of every subcommand, and the plan, which is written step by step.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    figures: Map<String, Value>,
    plan: Description<'a>,
}

/// The steps of a sweep that are listed where the user does not say.
const LISTED_STEPS: u64 = 4096;

fn plan<T: Element>(args: &PlanCommandArgs, session: &Session) -> Result<Planning, CliError> {
    let device = args.plan.device.choice()?.open_for_plans()?;
    let network = Network::load(&args.net)?;
    let graph = &network.graph;
    check_names("input", graph.inputs().iter().map(|input| &input.name), args.input.len())?;
    let mut files = OpenedFiles::new(&args.plan);
    let mut given = Vec::new();
    for (input, planned) in graph.inputs().iter().zip(&args.input) {
        given.push(shape_of(&mut files, &format!("input {}", input.name), planned, args.numbers.into())?);
    }
    files.remark(network.remarks(&given)?);
    let shapes = infer_nchw(graph, &given)?;
    let outputs: Vec<[usize; 4]> = graph.outputs().iter().map(|value| shapes.shape(*value)).collect();
    let output = match args.loss {
        PlanLossArg::Mse | PlanLossArg::CrossEntropy if args.train => {
            Some(Output::of_loss(&network.outputs, &outputs)?)
        }
        _ => None,
    };
    let target = args.target.as_ref().map(|target| target_shape(&mut files, args, target, output));
    let target = target.transpose()?;
    let loss = match args.loss {
        PlanLossArg::None => Loss::GradOutput,
        PlanLossArg::Sum => Loss::Sum,
        PlanLossArg::Mse => Loss::MeanSquaredError,
        PlanLossArg::CrossEntropy => {
            Loss::CrossEntropy { target_channels: target.map_or(1, |target| target[1]) }
        }
    };
    let objective = if args.train {
        let mode = args.plan.mode(Mode::Train);
        args.wanted.of(Objective { mode, grad_inputs: args.grad_input, ..Objective::training(loss) })
    } else {
        Objective { mode: args.plan.mode(Mode::Eval), ..Objective::inference() }
    };
    let (mut resident, mut transfer_bytes) = (files.resident_bytes(), TRANSFER_BYTES);
    if !args.output.is_empty() {
        check_names("output", &network.outputs, args.output.len())?;
        for (path, shape) in args.output.iter().zip(&outputs) {
            if let Some(decision) = args.written.decision() {
                decision.check(&path.display().to_string(), *shape)?;
                transfer_bytes = transfer_bytes.max(TRANSFER_BYTES + decision.buffer_bytes::<T>(*shape));
            }
            let decided = args.written.decision().map_or(*shape, |decision| decision.shape(*shape));
            let options = args.written.sink(shape[1], args.plan.picture_bytes());
            resident += sink_resident_bytes(path, decided, &options)?;
        }
    }
    if args.train {
        args.optimizer.check_momentum(args.momentum)?;
        resident += optimizer_bytes::<T>(args, graph, &objective)?
            + kept_bytes::<T>(args.save.as_deref(), &try_params(graph)?);
    }
    let options = PlanOptions {
        transfer_bytes,
        // as `run` does
        releases_parameters: !args.train,
        ..args.plan.options(&device, resident)?
    };
    let backend: &dyn Backend<T> = &device;
    let planner = Planner::new(graph, &shapes, &objective, backend);
    let progress = session.planning();
    let plan = planner.plan_unless(&options, &|| progress.wait())?;
    drop(progress);
    let figures = device.figures(&plan).map_err(TensorError::from)?;
    let (mut notes, limit_bytes) = (files.lines(), args.plan.picture_bytes());
    let shapes_alone = args.input.iter().filter_map(|planned| match planned {
        Planned::Shape(shape) => picture_note("an input", "a .png of 8 bits", *shape, limit_bytes),
        Planned::File(_) => None,
    });
    notes.extend(shapes_alone);
    if args.output.is_empty() && !args.train {
        notes.extend(
            outputs.iter().filter_map(|shape| picture_note("an output", ".png", *shape, limit_bytes)),
        );
    }
    Ok(Planning { plan, notes, files, device: figures })
}

/// A plan, and what would change with other files.
struct Planning {
    plan: Plan,
    notes: Vec<String>,
    files: OpenedFiles,
    /// Where it is made for a GPU.
    device: Option<DeviceFigures>,
}

/// What a plan takes of a GPU, as lines of text.
fn device_lines(figures: &DeviceFigures) -> [String; 2] {
    let DeviceFigures { calls, lost_to_waves, device_bytes, pinned_bytes, driver_bytes } = *figures;
    let [device, pinned, driver] = [device_bytes, pinned_bytes, driver_bytes].map(bytes::show);
    let lost = 100.0 * lost_to_waves;
    [
        format!("device: {calls} calls of kernels, {lost:.1} % lost to waves that are not full"),
        format!("memory: {device} on the device, {pinned} pinned on the host, {driver} for the driver"),
    ]
}

/// The same for JSON.
fn device_json(figures: &DeviceFigures) -> Value {
    json!({
        "calls": figures.calls,
        "lost_to_waves": figures.lost_to_waves,
        "device_bytes": figures.device_bytes,
        "pinned_bytes": figures.pinned_bytes,
        "driver_bytes": figures.driver_bytes,
    })
}

/// The shape of a tensor that a run would read; what its file would hold is counted.
fn shape_of(
    files: &mut OpenedFiles,
    name: &str,
    planned: &Planned,
    numbers: Numbers,
) -> Result<[usize; 4], CliError> {
    match planned {
        Planned::Shape(shape) => Ok(*shape),
        Planned::File(file) => Ok(files.count(name, file, numbers)?.shape),
    }
}

/// The shape of a target, which is that of an output where the loss is of one; class numbers are as they are, whatever
/// `--numbers` says.
fn target_shape(
    files: &mut OpenedFiles,
    args: &PlanCommandArgs,
    target: &Planned,
    output: Option<Output<'_>>,
) -> Result<[usize; 4], CliError> {
    let loss = match args.loss {
        PlanLossArg::CrossEntropy => LossArg::CrossEntropy,
        _ => LossArg::Mse,
    };
    let (given, shape) = match (target, loss) {
        (Planned::Shape(shape), _) => ("--target".to_owned(), *shape),
        (Planned::File(file), LossArg::Mse) => {
            (quoted(&file.path), files.inspect(file, args.numbers.into())?.shape)
        }
        (Planned::File(file), LossArg::CrossEntropy) => {
            (quoted(&file.path), files.inspect(file, Numbers::Classes)?.shape)
        }
    };
    if let Some(output) = output {
        output.check_target(given, shape, loss)?;
    }
    let has_classes = matches!(loss, LossArg::CrossEntropy) && shape[1] == 1;
    let numbers = if has_classes { Numbers::Classes } else { args.numbers.into() };
    shape_of(files, "target", target, numbers)
}

/// What a tensor adds that is a picture: one byte for each element, in memory up to a limit.
fn picture_note(what: &str, kind: &str, shape: [usize; 4], limit_bytes: u64) -> Option<String> {
    let [1, 1 | 3, ..] = shape else { return None };
    let held = shape.iter().try_fold(1_u64, |product, extent| product.checked_mul(*extent as u64))?;
    let extents = shape[1..].iter().map(usize::to_string).collect::<Vec<_>>().join("×");
    let adds = if held > limit_bytes { "takes a temporary file of" } else { "adds" };
    Some(format!("memory: {what} of {extents} in {kind} {adds} {}", bytes::show(held)))
}

/// What the optimiser keeps between steps.
fn optimizer_bytes<T: Element>(
    args: &PlanCommandArgs,
    graph: &Graph,
    objective: &Objective,
) -> Result<u64, CliError> {
    let specs = try_params(graph)?;
    let trained = objective.param_grads(graph)?.into_iter().map(|place| specs[place].elements()).sum();
    Ok(match args.optimizer {
        OptimizerArg::Sgd => {
            let options = SgdOptions { momentum: args.momentum, ..SgdOptions::default() };
            Sgd::<T>::new(options)?.state_bytes(trained)
        }
        OptimizerArg::Adamw => AdamW::<T>::new(AdamWOptions::default())?.state_bytes(trained),
    })
}
