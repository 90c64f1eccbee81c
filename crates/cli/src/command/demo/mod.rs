//! `tiled demo`: the main job on a shipped real picture.
//!
//! A VGG-like network paints the relief of the Earth, at a quarter of the picture's resolution: one forward pass and one
//! training step on the whole picture within the budget; then, on a crop that fits in memory untiled too, every
//! output and input gradient of tiled runs is compared with the untiled run, bit for bit.

mod check;
mod feature_map;
mod picture;
mod table;

use std::path::Path;

use serde_json::json;
use tiled::bytes;
use tiled::cpu::CpuBackend;
use tiled::exec::{
    Executor, FnSink, Io, Sgd, SgdOptions, Sink, Source, Trainer, open_source, peak_rss_bytes,
    reset_peak_rss, write_whole,
};
use tiled::explain::Explain;
use tiled::graph::{
    Graph, Hold, Loss, Objective, Parameters, Plan, PlanOptions, Planner, Shapes, UNLIMITED, infer_nchw,
    initialise, params,
};
use tiled::kernel::Backend;

use crate::args::{DemoArgs, threads};
use crate::error::CliError;
use crate::progress::Session;
use crate::report::{Figures, print, print_json};

use self::check::Check;
use self::feature_map::FeatureMap;
use self::table::{Column, table};

/// What the demo computes with.
struct Demo<'s> {
    graph: Graph,
    backend: CpuBackend,
    threads: usize,
    memory: u64,
    session: &'s Session,
    /// What the process held before it opened anything.
    start_bytes: Option<u64>,
}

pub(crate) fn run(args: &DemoArgs, session: &Session) -> Result<(), CliError> {
    let demo = Demo {
        graph: Graph::from_json(NETWORK)?,
        backend: CpuBackend::new()?,
        threads: threads(args.threads),
        memory: args.memory,
        session,
        start_bytes: resident_now(),
    };
    std::fs::create_dir_all(&args.out)
        .map_err(|source| CliError::Write { path: args.out.clone(), source })?;
    let (picture, relief) = picture::paths(args.picture.as_deref());
    let target = demo.quarter(&relief)?;
    let input = open_source::<f32>(&picture)?;
    let shapes = infer_nchw(&demo.graph, &[input.shape()])?;
    let mut parameters = initialise::<f32>(&params(&demo.graph), SEED);

    let forward = demo.forward(&*input, &shapes, target.resident_bytes(), &mut parameters, &args.out)?;
    let training = demo.training(&*input, &target, &shapes, &mut parameters, &args.out)?;
    let check = check::crop(&demo, &*input, &target, &parameters)?;
    if args.json {
        print_json(json_report(&forward, &training, &check))?;
    } else {
        print(&text_report(&demo, args, input.shape(), &forward, &training, &check))?;
    }
    check.verdict()
}

impl Demo<'_> {
    fn backend(&self) -> &dyn Backend<f32> {
        &self.backend
    }

    fn planner<'a>(&'a self, shapes: &'a Shapes, objective: &'a Objective) -> Planner<'a, f32> {
        Planner::new(&self.graph, shapes, objective, self.backend())
    }

    fn options(&self, resident_bytes: u64) -> PlanOptions {
        PlanOptions {
            memory_bytes: Some(self.memory),
            parallelism: self.threads,
            resident_bytes,
            ..PlanOptions::default()
        }
    }

    /// What the untiled run of an objective would hold.
    fn untiled_bytes(&self, shapes: &Shapes, objective: &Objective, resident: u64) -> Result<u64, CliError> {
        let options =
            PlanOptions { hold: Hold::Materialise, memory_bytes: Some(UNLIMITED), ..self.options(resident) };
        Ok(self.planner(shapes, objective).plan(&options)?.peak_bytes())
    }

    /// The outputs for the whole picture.
    fn forward(
        &self,
        input: &dyn Source<f32>,
        shapes: &Shapes,
        held: u64,
        parameters: &mut Parameters<f32>,
        out: &Path,
    ) -> Result<Column, CliError> {
        let [head, features] = [0, 1].map(|place| shapes.shape(self.graph.outputs()[place]));
        let map = FeatureMap::new(features)?;
        // an untrained head paints nothing worth keeping
        let head = FnSink::new::<f32>("<head>", head, |_, _| Ok(()))?;
        let held = held + input.resident_bytes() + Sink::<f32>::resident_bytes(&map);
        let objective = Objective::inference();
        let plan = self.planner(shapes, &objective).plan(&self.options(held))?;
        let untiled_bytes = self.untiled_bytes(shapes, &objective, held)?;
        let figures = Figures::new(&plan, 0.0);
        let column = Column::new("forward", &plan, untiled_bytes);
        let io = Io { inputs: vec![input], outputs: vec![&head, &map], ..Io::default() };
        reset_peak_rss();
        let mut executor = Executor::new(plan, self.backend(), self.threads)?;
        let report = executor.run(parameters, &io, &self.session.bar("forward"))?;
        let column = column.measured(Figures { seconds: report.seconds, ..figures }, self.start_bytes, None);
        drop(executor);
        let path = out.join("feature_map.png");
        write_whole(&path, &map.into_png(&path)?)?;
        Ok(column)
    }

    /// One training step on the whole picture: loss, gradients and change of every weight.
    fn training(
        &self,
        input: &dyn Source<f32>,
        target: &dyn Source<f32>,
        shapes: &Shapes,
        parameters: &mut Parameters<f32>,
        out: &Path,
    ) -> Result<Column, CliError> {
        let held = input.resident_bytes() + target.resident_bytes();
        let objective = Objective::training(Loss::MeanSquaredError);
        let plan = self.planner(shapes, &objective).plan(&self.options(held))?;
        let untiled_bytes = self.untiled_bytes(shapes, &objective, held)?;
        self.draw(&plan, &out.join("plan.svg"))?;
        let figures = Figures::new(&plan, 0.0);
        let column = Column::new("training step", &plan, untiled_bytes);
        let io = Io { inputs: vec![input], target: Some(target), ..Io::default() };
        reset_peak_rss();
        let executor = Executor::new(plan, self.backend(), self.threads)?;
        let optimizer = Sgd::new(SgdOptions { lr: 0.1, ..SgdOptions::default() })?;
        let mut trainer = Trainer::new(executor, optimizer);
        let report = trainer.step(parameters, &io, &self.session.bar("training step"))?;
        Ok(column.measured(Figures { seconds: report.seconds, ..figures }, self.start_bytes, report.loss))
    }

    fn draw(&self, plan: &Plan, path: &Path) -> Result<(), CliError> {
        Ok(write_whole(path, plan.to_svg_within(self.memory).as_bytes())?)
    }
}

/// What the process holds now; `None` where the system does not say.
fn resident_now() -> Option<u64> {
    reset_peak_rss().then(peak_rss_bytes).flatten()
}

fn json_report(
    forward: &Column,
    training: &Column,
    check: &Check,
) -> serde_json::Map<String, serde_json::Value> {
    let both = Figures {
        seconds: forward.figures.seconds + training.figures.seconds,
        tiles: training.figures.tiles,
        plan_peak_bytes: forward.figures.plan_peak_bytes.max(training.figures.plan_peak_bytes),
        flops: forward.figures.flops + training.figures.flops,
        redundant_flops: forward.figures.redundant_flops + training.figures.redundant_flops,
        budget: training.figures.budget,
    };
    let mut object = both.json();
    // the comparison after them holds an untiled run
    object.insert("peak_rss_bytes".into(), json!(forward.peak_rss_bytes.max(training.peak_rss_bytes)));
    object.insert("untiled_bytes".into(), json!(training.untiled_bytes));
    object.insert("compared".into(), json!(check.compared));
    object.insert("mismatches".into(), json!(check.mismatches));
    object.insert("forward".into(), forward.json());
    object.insert("training".into(), training.json());
    object.insert("check".into(), check.json());
    object
}

fn text_report(
    demo: &Demo<'_>,
    args: &DemoArgs,
    [_, channels, height, width]: [usize; 4],
    forward: &Column,
    training: &Column,
    check: &Check,
) -> String {
    let name = Backend::<f32>::name(&demo.backend);
    let out = args.out.display();
    let mut text = format!(
        "a VGG-like network of {} layers on a picture of {width}×{height}×{channels}, {name}, {} threads, \
         budget {}\n\n",
        demo.graph.nodes().len(),
        demo.threads,
        bytes::show(args.memory),
    );
    text.push_str(&table(&[forward, training]));
    text.push_str(&check.text());
    text.push_str(&format!("\nwrote {out}/plan.svg, {out}/feature_map.png"));
    text
}

const NETWORK: &str = include_str!("../../../assets/demo_network.json");
const SEED: u64 = 1;
