//! `tiled train`: training steps over the whole image.

mod log;
mod steps;
mod target;

use serde_json::{Value, json};
use tiled::exec::{AdamW, AdamWOptions, Io, Optimizer, Reservation, Sgd, SgdOptions, Source};
use tiled::graph::{Loss, Mode, Objective, Parameters, Plan, try_params};
use tiled::network::WeightsFrom;
use tiled::tensor::Element;

use self::steps::Steps;

use crate::args::{DTypeArg, LossArg, OptimizerArg, TrainArgs};
use crate::chart;
use crate::error::CliError;
use crate::files::{Files, weights_bytes};
use crate::job::{Job, changed, changed_json, create_sinks, kept_bytes, reserve_sinks, wrote};
use crate::opened::OpenedFiles;
use crate::progress::Session;
use crate::report::{Figures, print, print_json};

pub(crate) fn run(args: &TrainArgs, session: &Session) -> Result<(), CliError> {
    match args.plan.dtype {
        DTypeArg::F32 => run_as::<f32>(args, session),
        DTypeArg::F64 => run_as::<f64>(args, session),
    }
}

fn run_as<T: Element>(args: &TrainArgs, session: &Session) -> Result<(), CliError> {
    args.optimizer.check_momentum(args.momentum)?;
    let decay = args.weight_decay;
    match args.optimizer {
        OptimizerArg::Sgd => {
            let (lr, weight_decay) = (args.lr.unwrap_or(1e-2), decay.unwrap_or(0.0));
            let options = SgdOptions { lr, momentum: args.momentum, weight_decay, ..SgdOptions::default() };
            train(args, session, Sgd::<T>::new(options)?)
        }
        OptimizerArg::Adamw => {
            let default = AdamWOptions::default();
            let (lr, weight_decay) = (args.lr.unwrap_or(default.lr), decay.unwrap_or(default.weight_decay));
            train(args, session, AdamW::<T>::new(AdamWOptions { lr, weight_decay, ..default })?)
        }
    }
}

fn train<T: Element, O: Optimizer<T>>(
    args: &TrainArgs,
    session: &Session,
    optimizer: O,
) -> Result<(), CliError> {
    let files = Files::default().reads("target", [&*args.target.path]).resume("weights", "save");
    let files = files.writes("save", &args.save).writes("prediction", &args.prediction);
    let files = files.writes("loss-curve", &args.loss_curve).writes("log", &args.log);
    args.network.reads(files, args.weights.as_ref()).check()?;
    let mut job = Job::<T>::open(&args.network, &args.plan)?;
    let target = target::open(args, &mut job)?;
    let loss = match args.loss {
        LossArg::Mse => Loss::MeanSquaredError,
        LossArg::CrossEntropy => Loss::CrossEntropy { target_channels: target.shape()[1] },
    };
    let mode = args.plan.mode(Mode::Train);
    let (ignore_index, seed) = (args.ignore_index, args.seed);
    let objective = Objective { mode, ignore_index, seed, ..Objective::training(loss) };
    let objective = args.wanted.of(objective);
    let specs = try_params(&job.graph)?;
    let trained = objective.param_grads(&job.graph)?.into_iter().map(|place| specs[place].elements()).sum();
    if trained == 0 {
        job.files.remark(vec!["warning: there is no parameter to train".to_owned()]);
    }
    let saved_bytes =
        weights_bytes(specs.iter().map(|spec| (spec.name.as_str(), spec.elements())), size_of::<T>());
    let kept_bytes = kept_bytes::<T>(args.save.as_deref(), &specs);
    let resident = job.input_bytes() + target.resident_bytes() + optimizer.state_bytes(trained) + kept_bytes;
    let plan = job.plan(&objective, &args.plan.options(&job.backend, resident)?, session)?;
    // every file that is written after the steps has its place and its room before them
    let place = args.save.as_ref().map(|path| Reservation::new(path, saved_bytes)).transpose()?;
    let curve = args.loss_curve.as_ref().map(|path| Reservation::new(path, CURVE_BYTES)).transpose()?;
    let (paths, limit) = (args.prediction.as_slice(), args.plan.picture_bytes());
    let (prediction, held_bytes) = reserve_sinks::<T>("prediction", paths, &job.outputs(), limit)?;
    // before the steps, that a budget is not too small after them; it counts nothing of the training but the weights and the inputs
    let of_prediction = || -> Result<Plan, CliError> {
        let options = args.plan.options(&job.backend, job.input_bytes() + held_bytes)?;
        job.plan(&Objective::inference(), &options, session)
    };
    let planned = args.prediction.as_ref().map(|_| of_prediction()).transpose()?;
    let own = job.has_weights() || args.weights.is_some();
    let weights = if own { args.weights.clone() } else { Some(WeightsFrom::Random(0)) };
    let mut parameters = job.parameters(&args.network, weights.as_ref())?;
    let kept = args.save.as_ref().map(|_| parameters.try_clone()).transpose()?;
    let step = Figures::new(&plan, 0.0).after_opening(job.files.opening_bytes());
    let mut steps =
        Steps { args, session, parameters: &mut parameters, kept, losses: Vec::new(), seconds: 0.0, place };
    steps.run(&job, &*target, plan, optimizer)?;
    let Steps { losses, seconds, kept, .. } = steps;
    let mut figures = step.times(losses.len(), seconds);
    drop((target, curve, prediction, kept));
    if let Some(path) = &args.loss_curve {
        chart::draw_losses(path, &losses)?;
    }
    let pictures = match planned {
        Some(plan) => predict(args, session, &job, plan, &mut parameters, &mut figures)?,
        None => Pictures { lines: Vec::new(), json: json!([]) },
    };
    report(args, &figures, &losses, &job.files, pictures)
}

/// Writes the outputs of the trained network.
fn predict<T: Element>(
    args: &TrainArgs,
    session: &Session,
    job: &Job<T>,
    plan: Plan,
    parameters: &mut Parameters<T>,
    figures: &mut Figures,
) -> Result<Pictures, CliError> {
    let paths: Vec<_> = args.prediction.iter().cloned().collect();
    let sinks = create_sinks::<T>("prediction", &paths, &job.outputs(), args.plan.picture_bytes())?;
    // the memory of the training is back by now
    figures.plan_peak_bytes = figures.plan_peak_bytes.max(plan.peak_bytes());
    let mut executor = args.plan.executor(plan, &job.backend)?;
    let outputs = sinks.iter().map(AsRef::as_ref).collect();
    let io = Io { inputs: job.sources(), outputs, ..Io::default() };
    executor.run(parameters, &io, &session.bar("prediction"))?;
    Ok(Pictures { lines: changed(&paths, &sinks), json: changed_json(&paths, &sinks) })
}

/// What pictures do not hold as it was.
struct Pictures {
    lines: Vec<String>,
    json: Value,
}

fn report(
    args: &TrainArgs,
    figures: &Figures,
    losses: &[f64],
    files: &OpenedFiles,
    pictures: Pictures,
) -> Result<(), CliError> {
    if args.plan.json {
        let mut object = figures.json();
        object.insert("steps".into(), json!(losses.len()));
        object.insert("losses".into(), json!(losses));
        object.insert("inputs".into(), files.json());
        object.insert("remarks".into(), json!(files.remarks()));
        object.insert("changed".into(), pictures.json);
        return print_json(object);
    }
    files.lines().iter().try_for_each(|line| print(line))?;
    for (step, loss) in (1..).zip(losses) {
        print(&format!("step {step:4}  loss {loss:.6}"))?;
    }
    print(&figures.text())?;
    let written = [&args.save, &args.loss_curve, &args.prediction];
    written.into_iter().flatten().try_for_each(|path| print(&wrote(path, &[])))?;
    pictures.lines.iter().try_for_each(|line| print(line))
}

/// More than a drawing of losses takes on the disk, up to some thousand steps.
const CURVE_BYTES: u64 = 256 * 1024;
