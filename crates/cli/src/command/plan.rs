//! `tiled plan`: what a run will do, without touching data.

use std::io::{BufWriter, Write};
use std::time::Instant;

use serde::Serialize;
use serde_json::{Map, Value};
use tiled::cpu::CpuBackend;
use tiled::exec::write_whole;
use tiled::graph::{Description, Loss, Mode, Objective, Plan, Planner, StepDetail, infer_nchw};
use tiled::kernel::Backend;
use tiled::tensor::Element;

use crate::args::{DTypeArg, PlanCommandArgs, PlanLossArg};
use crate::error::CliError;
use crate::files::Files;
use crate::network;
use crate::report::{Figures, print};
use crate::text::EscapedJson;

pub(crate) fn run(args: &PlanCommandArgs) -> Result<(), CliError> {
    Files::default().reads("net", network::file(&args.net)).writes("svg", &args.svg).check()?;
    let begin = Instant::now();
    let plan = match args.plan.dtype {
        DTypeArg::F32 => plan::<f32>(args)?,
        DTypeArg::F64 => plan::<f64>(args)?,
    };
    let figures = Figures::new(&plan, begin.elapsed().as_secs_f64());
    if let Some(path) = &args.svg {
        let drawing = match args.plan.memory {
            Some(budget) => plan.to_svg_within(budget),
            None => plan.to_svg(),
        };
        write_whole(path, drawing.as_bytes())?;
    }
    if !args.plan.json {
        return print(&plan.to_text());
    }
    let all = plan.sweeps.iter().all(|sweep| sweep.steps <= LISTED_STEPS);
    let detail = args.steps.unwrap_or(if all { StepDetail::All } else { StepDetail::First(LISTED_STEPS) });
    let report = Report { figures: figures.json(), plan: plan.describe(detail) };
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

fn plan<T: Element>(args: &PlanCommandArgs) -> Result<Plan, CliError> {
    let graph = network::load(&args.net)?;
    let shapes = infer_nchw(&graph, &args.input)?;
    let backend = CpuBackend::new()?;
    let backend: &dyn Backend<T> = &backend;
    let loss = match args.loss {
        PlanLossArg::None => Loss::GradOutput,
        PlanLossArg::Sum => Loss::Sum,
        PlanLossArg::Mse => Loss::MeanSquaredError,
        PlanLossArg::CrossEntropy => Loss::CrossEntropy { target_channels: 1 },
    };
    let objective = if args.train {
        let mode = args.plan.mode(Mode::Train);
        Objective { mode, grad_inputs: args.grad_input, ..Objective::training(loss) }
    } else {
        Objective { mode: args.plan.mode(Mode::Eval), ..Objective::inference() }
    };
    Ok(Planner::new(&graph, &shapes, &objective, backend).plan(&args.plan.options(0))?)
}
