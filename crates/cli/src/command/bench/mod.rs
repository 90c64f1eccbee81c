//! `tiled bench`: built-in workloads, tiled and untiled alternately, on our own backend.

mod workload;

use serde_json::{Map, Value, json};
use tiled::bytes;
use tiled::device::DeviceBackend;
use tiled::exec::{Executor, Io, MemorySink, MemorySource, Sink, Source, peak_rss_bytes};
use tiled::graph::{
    Hold, InMemory, Objective, Parameters, Plan, PlanOptions, Planner, Rng, Shapes, UNLIMITED, infer,
    initialise, params,
};
use tiled::kernel::Backend;
use tiled::tensor::Tensor;

use self::workload::{Workload, convolution, workloads};
use crate::args::{BenchArgs, threads};
use crate::error::CliError;
use crate::progress::Session;
use crate::report::{print, print_json};

/// What one way to run a workload took.
#[derive(Debug)]
struct Timed {
    tiles: u64,
    plan_peak_bytes: u64,
    flops: f64,
    redundant_flops: f64,
    predicted: f64,
    /// The median of the runs.
    seconds: f64,
}

/// A workload with its two ways.
#[derive(Debug)]
struct Row {
    name: String,
    tiled: Timed,
    untiled: Option<Timed>,
}

pub(crate) fn run(args: &BenchArgs, session: &Session) -> Result<(), CliError> {
    let backend = args.device.choice()?.open()?;
    let bench = Bench { args, session, backend: &backend, threads: threads(args.threads) };
    let reference = bench.reference()?;
    if !args.json {
        print(&format!(
            "{}, {} threads, medians of {} runs; one convolution of 128 to 128 channels: {reference:.0} GFLOP/s\n\n{}",
            Backend::<f32>::name(&backend),
            bench.threads,
            args.runs,
            HEAD
        ))?;
    }
    let mut rows = Vec::new();
    for workload in workloads()?.iter().filter(|workload| workload.name.contains(&args.filter)) {
        let row = bench.measure(workload)?;
        if !args.json {
            print(&row.text(reference))?;
        }
        rows.push(row);
    }
    if args.json { print_json(json_report(&rows, reference)) } else { Ok(()) }
}

struct Bench<'a> {
    args: &'a BenchArgs,
    session: &'a Session,
    backend: &'a DeviceBackend,
    threads: usize,
}

/// A plan that is ready to run any number of times.
struct Way<'a> {
    executor: Executor<'a, f32>,
    timed: Timed,
    seconds: Vec<f64>,
}

impl<'a> Bench<'a> {
    fn measure(&self, workload: &Workload) -> Result<Row, CliError> {
        let shapes = infer(&workload.graph, 1, &[workload.extents])?;
        let input = random(shapes.shape(workload.graph.value("x").unwrap_or(workload.graph.outputs()[0])))?;
        let mut parameters = initialise::<f32>(&params(&workload.graph), 1);
        let plan = |hold, memory_bytes| self.plan(workload, &shapes, hold, memory_bytes);
        let mut ways = vec![self.way(plan(Hold::Auto, self.args.memory)?)?];
        let untiled = plan(Hold::Materialise, Some(UNLIMITED))?;
        if untiled.peak_bytes() <= self.args.untiled_limit {
            ways.push(self.way(untiled)?);
        }
        for run in 0..=self.args.runs {
            for way in &mut ways {
                let seconds = self.once(workload, &shapes, &input, &mut parameters, way)?;
                // the first run of each way touches its memory for the first time and is not counted
                if run > 0 {
                    way.seconds.push(seconds);
                }
            }
        }
        let mut timed = ways.into_iter().map(Way::finish);
        let tiled = timed.next().expect("invariant: the tiled way always runs");
        Ok(Row { name: workload.name.clone(), tiled, untiled: timed.next() })
    }

    fn plan(
        &self,
        workload: &Workload,
        shapes: &Shapes,
        hold: Hold,
        memory_bytes: Option<u64>,
    ) -> Result<Plan, CliError> {
        let (parallelism, in_memory) = (self.threads, InMemory::ALL);
        self.backend.check_budget(memory_bytes)?;
        let memory_bytes = memory_bytes.or(self.backend.memory_bytes());
        let options = PlanOptions { hold, memory_bytes, parallelism, in_memory, ..PlanOptions::default() };
        let backend: &dyn Backend<f32> = self.backend;
        Ok(Planner::new(&workload.graph, shapes, &workload.objective, backend).plan(&options)?)
    }

    fn way(&self, plan: Plan) -> Result<Way<'a>, CliError> {
        let timed = Timed {
            tiles: plan.tiles(),
            plan_peak_bytes: plan.peak_bytes(),
            flops: plan.flops,
            redundant_flops: plan.redundant_flops,
            predicted: plan.predicted_seconds,
            seconds: f64::NAN,
        };
        Ok(Way { executor: Executor::new(plan, self.backend, self.threads)?, timed, seconds: Vec::new() })
    }

    fn once(
        &self,
        workload: &Workload,
        shapes: &Shapes,
        input: &Tensor<f32>,
        parameters: &mut Parameters<f32>,
        way: &mut Way<'_>,
    ) -> Result<f64, CliError> {
        let source = MemorySource::try_from(input)?;
        let Objective { outputs, grad_inputs, .. } = workload.objective;
        let sink = |is_wanted: bool, shape| is_wanted.then(|| MemorySink::<f32>::new(shape)).transpose();
        let output = sink(outputs, shapes.shape(workload.graph.outputs()[0]))?;
        let grad_input = sink(grad_inputs, input.shape())?;
        let io = Io {
            inputs: vec![&source as &dyn Source<f32>],
            outputs: output.iter().map(|sink| sink as &dyn Sink<f32>).collect(),
            grad_inputs: grad_input.iter().map(|sink| sink as &dyn Sink<f32>).collect(),
            ..Io::default()
        };
        Ok(way.executor.run(parameters, &io, &self.session.bar(&workload.name))?.seconds)
    }

    /// What one convolution alone reaches, in GFLOP/s: what the speed of a network is measured by.
    fn reference(&self) -> Result<f64, CliError> {
        let workload = convolution()?;
        let shapes = infer(&workload.graph, 1, &[workload.extents])?;
        let input = random([1, 128, workload.extents[0], workload.extents[1]])?;
        let mut parameters = initialise::<f32>(&params(&workload.graph), 1);
        let mut way = self.way(self.plan(&workload, &shapes, Hold::Materialise, None)?)?;
        let mut best = f64::INFINITY;
        for _ in 0..20 {
            best = best.min(self.once(&workload, &shapes, &input, &mut parameters, &mut way)?);
        }
        Ok(way.timed.flops / best / 1e9)
    }
}

impl Way<'_> {
    fn finish(mut self) -> Timed {
        self.seconds.sort_by(f64::total_cmp);
        Timed { seconds: self.seconds[self.seconds.len() / 2], ..self.timed }
    }
}

impl Timed {
    /// The speed by the arithmetic that the untiled run does too.
    fn gflops(&self) -> f64 {
        (self.flops - self.redundant_flops) / self.seconds / 1e9
    }

    fn json(&self, reference: f64) -> Value {
        json!({
            "seconds": self.seconds,
            "predicted_seconds": self.predicted,
            "tiles": self.tiles,
            "plan_peak_bytes": self.plan_peak_bytes,
            "flops": self.flops,
            "redundant_flops": self.redundant_flops,
            "gflops": self.gflops(),
            "share_of_one_convolution": self.gflops() / reference,
        })
    }
}

impl Row {
    fn ratio(&self) -> Option<f64> {
        Some(self.tiled.seconds / self.untiled.as_ref()?.seconds)
    }

    fn text(&self, reference: f64) -> String {
        let part = |timed: &Timed| {
            format!(
                "{:>8.3} s {:>8.3} s {:>6.1} {:>4.0} % {:>11} {:>7}",
                timed.seconds,
                timed.predicted,
                timed.gflops(),
                100.0 * timed.gflops() / reference,
                bytes::show(timed.plan_peak_bytes),
                timed.tiles,
            )
        };
        let mut text = format!("{:30} tiled   {}", self.name, part(&self.tiled));
        match &self.untiled {
            Some(untiled) => text.push_str(&format!("\n{:30} untiled {}", "", part(untiled))),
            None => text.push_str(&format!("\n{:30} untiled would hold too much, see --untiled-limit", "")),
        }
        if let Some(ratio) = self.ratio() {
            text.push_str(&format!("   tiled/untiled {ratio:.2}"));
        }
        text
    }
}

fn json_report(rows: &[Row], reference: f64) -> Map<String, Value> {
    let sum = |of: fn(&Timed) -> f64| rows.iter().map(|row| of(&row.tiled)).sum::<f64>();
    let most = |of: fn(&Timed) -> u64| rows.iter().map(|row| of(&row.tiled)).max().unwrap_or(0);
    let row = |row: &Row| {
        json!({
            "name": row.name,
            "tiled": row.tiled.json(reference),
            "untiled": row.untiled.as_ref().map(|untiled| untiled.json(reference)),
            "ratio": row.ratio(),
        })
    };
    let mut object = Map::new();
    object.insert("seconds".into(), json!(sum(|timed| timed.seconds)));
    object.insert("tiles".into(), json!(most(|timed| timed.tiles)));
    object.insert("plan_peak_bytes".into(), json!(most(|timed| timed.plan_peak_bytes)));
    object.insert("peak_rss_bytes".into(), json!(peak_rss_bytes()));
    object.insert("flops".into(), json!(sum(|timed| timed.flops)));
    object.insert("redundant_flops".into(), json!(sum(|timed| timed.redundant_flops)));
    object.insert("one_convolution_gflops".into(), json!(reference));
    object.insert("workloads".into(), rows.iter().map(row).collect());
    object
}

fn random(shape: [usize; 4]) -> Result<Tensor<f32>, CliError> {
    let mut rng = Rng::new(1);
    Ok(Tensor::from_fn(shape, |_| tiled::tensor::Element::from_f64(2.0 * rng.uniform() - 1.0))?)
}

const HEAD: &str = "\
workload                                  measured  predicted GFLOP/s of conv      memory   tiles";
