//! What every subcommand reports, as text and as JSON.

use std::io::Write;

use serde_json::{Map, Value, json};
use tiled::bytes;
use tiled::exec::peak_rss_bytes;
use tiled::graph::{Budget, BudgetSource, Plan};

use crate::error::CliError;
use crate::text::{escape_json, escape_lines};

/// The figures that every subcommand has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) seconds: f64,
    pub(crate) tiles: u64,
    pub(crate) plan_peak_bytes: u64,
    pub(crate) flops: f64,
    pub(crate) redundant_flops: f64,
    /// What the plan had to fit in.
    pub(crate) budget: Budget,
}

impl Figures {
    /// The figures of one run of a plan.
    pub(crate) fn new(plan: &Plan, seconds: f64) -> Self {
        Self {
            seconds,
            tiles: plan.tiles(),
            plan_peak_bytes: plan.peak_bytes(),
            flops: plan.flops,
            redundant_flops: plan.redundant_flops,
            budget: plan.budget,
        }
    }

    /// The same where so much was held before the run began, while pictures were decoded.
    pub(crate) fn after_opening(self, bytes: u64) -> Self {
        Self { plan_peak_bytes: self.plan_peak_bytes.max(bytes), ..self }
    }

    /// The figures of so many runs of the plan, which took so long together.
    pub(crate) fn times(self, runs: usize, seconds: f64) -> Self {
        let runs = f64::from(u32::try_from(runs).unwrap_or(u32::MAX));
        let (flops, redundant_flops) = (runs * self.flops, runs * self.redundant_flops);
        Self { seconds, flops, redundant_flops, ..self }
    }

    /// The JSON object, to which a subcommand adds its own fields.
    pub(crate) fn json(&self) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("seconds".into(), json!(self.seconds));
        object.insert("tiles".into(), json!(self.tiles));
        object.insert("plan_peak_bytes".into(), json!(self.plan_peak_bytes));
        object.insert("budget_bytes".into(), json!(self.budget.limit()));
        object.insert("budget_source".into(), json!(self.budget.source.name()));
        object.insert("peak_rss_bytes".into(), json!(peak_rss_bytes()));
        object.insert("flops".into(), json!(self.flops));
        object.insert("redundant_flops".into(), json!(self.redundant_flops));
        object
    }

    /// Three lines of text.
    pub(crate) fn text(&self) -> String {
        let speed = if self.seconds > 0.0 { self.flops / self.seconds / 1e9 } else { 0.0 };
        let peak = peak_rss_bytes().map_or_else(|| "unknown".to_owned(), bytes::show);
        format!(
            "{:.2} s, {} tiles, {} ({:.2} % computed twice), {speed:.1} GFLOP/s\n\
             memory: plan {}, process peak {peak}\n\
             {}",
            self.seconds,
            self.tiles,
            show_flops(self.flops),
            self.redundant_percent(),
            bytes::show(self.plan_peak_bytes),
            show_budget(self.budget),
        )
    }

    pub(crate) fn redundant_percent(&self) -> f64 {
        if self.flops > 0.0 { 100.0 * self.redundant_flops / self.flops } else { 0.0 }
    }
}

/// What a plan had to fit in, and who said so, as a line of text.
pub(crate) fn show_budget(budget: Budget) -> String {
    let most = bytes::show(budget.bytes);
    match budget.source {
        BudgetSource::Unlimited => "memory: unlimited".to_owned(),
        BudgetSource::Given => format!("memory: at most {most}"),
        BudgetSource::Assumed => {
            format!("memory: at most {most} (the system does not say what can be had; --memory sets another)")
        }
        source => {
            format!("memory: at most {most} (what can be had now: {}; --memory sets another)", source.name())
        }
    }
}

/// An amount of arithmetic in the largest unit of which there is at least one.
pub(crate) fn show_flops(flops: f64) -> String {
    let units = [(1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")];
    let (scale, unit) = units.into_iter().find(|(scale, _)| flops >= *scale).unwrap_or((1e3, "kFLOP"));
    format!("{:.2} {unit}", flops / scale)
}

/// Writes to standard output; a reader that has gone ends the program quietly.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", escape_lines(text))
        .and_then(|()| output.flush())
        .map_err(|source| CliError::Stdout { source })
}

/// Writes one JSON object to standard output.
pub(crate) fn print_json(object: Map<String, Value>) -> Result<(), CliError> {
    print(&escape_json(&Value::Object(object).to_string()))
}
