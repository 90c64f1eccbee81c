//! The table of the demo.

use serde_json::{Value, json};
use tiled::bytes;
use tiled::exec::peak_rss_bytes;
use tiled::graph::Plan;

use crate::report::{Figures, show_flops};

/// One run: what its plan promised and what was measured.
#[derive(Debug)]
pub(super) struct Column {
    name: &'static str,
    tiling: String,
    pub(super) untiled_bytes: u64,
    pub(super) figures: Figures,
    /// The most that the process held during the run, and how much more that is than at its start.
    pub(super) peak_rss_bytes: Option<u64>,
    grown_bytes: Option<u64>,
    loss: Option<f64>,
}

impl Column {
    pub(super) fn new(name: &'static str, plan: &Plan, untiled_bytes: u64) -> Self {
        let sweep = &plan.sweeps[plan.sweeps.len() - 1];
        let [rows, cols] = sweep.grid.counts();
        let tallest = sweep.grid.tile([0, 0]).rows().len();
        let tiling = if sweep.band < tallest {
            let strips = if cols == 1 { "strip" } else { "strips" };
            format!("{cols} {strips}, {} bands", sweep.steps)
        } else {
            format!("{rows}×{cols} tiles")
        };
        let figures = Figures::new(plan, 0.0);
        Self { name, tiling, untiled_bytes, figures, peak_rss_bytes: None, grown_bytes: None, loss: None }
    }

    /// Takes what was measured, of memory since the peak was reset; the process began with `start_bytes`.
    pub(super) fn measured(self, figures: Figures, start_bytes: Option<u64>, loss: Option<f64>) -> Self {
        let peak_rss_bytes = peak_rss_bytes();
        let grown_bytes = peak_rss_bytes.zip(start_bytes).map(|(peak, start)| peak.saturating_sub(start));
        Self { figures, peak_rss_bytes, grown_bytes, loss, ..self }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "seconds": self.figures.seconds,
            "tiles": self.figures.tiles,
            "plan_peak_bytes": self.figures.plan_peak_bytes,
            "measured_peak_bytes": self.grown_bytes,
            "untiled_bytes": self.untiled_bytes,
            "flops": self.figures.flops,
            "redundant_flops": self.figures.redundant_flops,
            "loss": self.loss,
        })
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let figures = &self.figures;
        let unknown = || "not known here".to_owned();
        let mut rows = vec![
            ("tiles", self.tiling.clone()),
            ("arithmetic", show_flops(figures.flops)),
            ("computed twice", format!("{:.2} %", figures.redundant_percent())),
            ("peak memory, predicted", bytes::show(figures.plan_peak_bytes)),
            ("peak memory, measured", self.grown_bytes.map_or_else(unknown, bytes::show)),
            ("memory of the untiled run", bytes::show(self.untiled_bytes)),
            ("time", format!("{:.2} s", figures.seconds)),
            ("speed", format!("{:.1} GFLOP/s", figures.flops / figures.seconds / 1e9)),
        ];
        rows.push(("loss", self.loss.map_or_else(|| "–".to_owned(), |loss| format!("{loss:.5}"))));
        rows
    }
}

/// Columns side by side, with what measured means below.
pub(super) fn table(columns: &[&Column]) -> String {
    let cells: Vec<Vec<(&'static str, String)>> = columns.iter().map(|column| column.rows()).collect();
    let mut text = format!("{:27}", "");
    for column in columns {
        text.push_str(&format!("{:>25}", column.name));
    }
    for row in 0..cells[0].len() {
        text.push_str(&format!("\n{:27}", cells[0][row].0));
        for column in &cells {
            text.push_str(&format!("{:>25}", column[row].1));
        }
    }
    text.push_str(
        "\n\npredicted: all that the plan accounts for, the decoded picture, its target and the drawing included\n\
         measured: the most that the process held during the run beyond what it held when it began; this counts the \
         program's own code and stacks too\n",
    );
    text
}
