//! A plan as text, as JSON and as a picture.
//!
//! All three say the same: the sweeps with their tiles and bands, how each node is held and what that costs,
//! and, step by step, the region of every node with the padding that clipping removed from its operands. A [`Plan`] says
//! it by the methods of [`Explain`].
//!
//! It decides nothing and runs nothing: it walks a plan that is there, as an executor would, and writes down what it
//! meets. Networks are written by [`Graph::to_json`](tiled_graph::Graph::to_json), in the format that is read.
//!
//! ```text
//!   Plan ─┬─ facts: a sweep, each of its nodes ─┬─► text: a table for people
//!         │                                     ├─► json: as it is walked, also as part of a report
//!         └─ steps: bands, regions, paddings ───┴─► svg: memory, tiles and halos of one step
//! ```
//!
//! # Example
//!
//! ```
//! use tiled_explain::Explain;
//! use tiled_graph::{Graph, Hold, Objective, PlanOptions, Planner, Tiling, infer};
//! use tiled_kernel::Reference;
//!
//! let graph = Graph::builtin("seed-001").expect("it is built in");
//! let shapes = infer(&graph, 1, &[[16, 16]])?;
//! let options = PlanOptions { tiling: Tiling::Grid([4, 4]), hold: Hold::Recompute, ..PlanOptions::default() };
//! let plan = Planner::<f32>::new(&graph, &shapes, &Objective::inference(), &Reference).plan(&options)?;
//! assert!(plan.to_text().contains("recompute, 4×4 tiles of 1×1"));
//! assert!(plan.to_svg().starts_with("<svg xmlns="));
//! # Ok::<(), tiled_graph::PlanError>(())
//! ```
#![forbid(unsafe_code)]

mod facts;
mod json;
mod number;
mod steps;
mod svg;
mod text;

use std::io;

use serde::Serialize;
use tiled_graph::Plan;

/// The steps that a description lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum StepDetail {
    /// None: sweeps and nodes only.
    #[default]
    None,
    /// The first ones of each sweep.
    First(u64),
    /// All. A plan of a large image has thousands, each with every node.
    All,
}

impl StepDetail {
    /// The most steps of a sweep that are listed.
    ///
    /// ```
    /// use tiled_explain::StepDetail;
    /// assert_eq!([StepDetail::None, StepDetail::First(8)].map(StepDetail::limit), [0, 8]);
    /// assert_eq!(StepDetail::All.limit(), u64::MAX);
    /// ```
    #[must_use]
    pub const fn limit(self) -> u64 {
        match self {
            Self::None => 0,
            Self::First(steps) => steps,
            Self::All => u64::MAX,
        }
    }
}

/// A plan that can be serialised, steps included, without being built in memory.
///
/// Regions are `[y0, y1, x0, x1]`, half-open, in coordinates of the whole tensor; padding is
/// `[top, bottom, left, right]`.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    plan: &'a Plan,
    detail: StepDetail,
}

/// What a plan says of itself.
pub trait Explain {
    /// The plan as a table for people: sweeps, how each node is held, memory and arithmetic.
    ///
    /// ```
    /// use tiled_explain::Explain;
    /// use tiled_graph::{Graph, Hold, Objective, PlanOptions, Planner, Tiling, infer};
    /// use tiled_kernel::Reference;
    /// let graph = Graph::builtin("seed-001").expect("it is built in");
    /// let shapes = infer(&graph, 1, &[[16, 16]])?;
    /// let objective = Objective::inference();
    /// let options = PlanOptions { tiling: Tiling::Grid([4, 4]), hold: Hold::Recompute, ..PlanOptions::default() };
    /// let plan = Planner::<f32>::new(&graph, &shapes, &objective, &Reference).plan(&options)?;
    /// assert!(plan.to_text().contains("recompute, 4×4 tiles of 1×1"));
    /// # Ok::<(), tiled_graph::PlanError>(())
    /// ```
    #[must_use]
    fn to_text(&self) -> String;

    /// The plan as something to serialise, alone or as part of a larger report.
    ///
    /// ```
    /// use tiled_explain::{Explain, StepDetail};
    /// use tiled_graph::{Graph, Objective, PlanOptions, Planner, infer};
    /// use tiled_kernel::Reference;
    /// let graph = Graph::builtin("seed-001").expect("it is built in");
    /// let shapes = infer(&graph, 1, &[[16, 16]])?;
    /// let objective = Objective::inference();
    /// let plan = Planner::<f32>::new(&graph, &shapes, &objective, &Reference).plan(&PlanOptions::default())?;
    /// let text = serde_json::to_string(&plan.describe(StepDetail::None)).expect("a plan is plain data");
    /// assert!(text.starts_with(r#"{"dtype":"float32","lanes":1,"#));
    /// # Ok::<(), tiled_graph::PlanError>(())
    /// ```
    #[must_use]
    fn describe(&self, detail: StepDetail) -> Description<'_>;

    /// The plan as JSON in memory; see [`Explain::write_json`] for plans with many steps.
    ///
    /// # Panics
    /// Never: a plan is plain data.
    ///
    /// ```
    /// use tiled_explain::{Explain, StepDetail};
    /// use tiled_graph::{Graph, Hold, Objective, PlanOptions, Planner, Tiling, infer};
    /// use tiled_kernel::Reference;
    /// let graph = Graph::builtin("seed-001").expect("it is built in");
    /// let shapes = infer(&graph, 1, &[[16, 16]])?;
    /// let objective = Objective::inference();
    /// let options = PlanOptions { tiling: Tiling::Grid([4, 4]), hold: Hold::Recompute, ..PlanOptions::default() };
    /// let plan = Planner::<f32>::new(&graph, &shapes, &objective, &Reference).plan(&options)?;
    /// let first = &plan.to_json(StepDetail::First(1))["sweeps"][0]["steps"][0];
    /// let conv = &first["nodes"][1];
    /// assert_eq!(conv["name"], "conv1");
    /// assert_eq!(conv["region"], serde_json::json!([0, 6, 0, 6]));
    /// assert_eq!(conv["inputs"][0]["unclipped"], serde_json::json!([-1, 7, -1, 7]));
    /// assert_eq!(conv["inputs"][0]["padding"], serde_json::json!([1, 0, 1, 0]));
    /// # Ok::<(), tiled_graph::PlanError>(())
    /// ```
    #[must_use]
    fn to_json(&self, detail: StepDetail) -> serde_json::Value;

    /// Writes the JSON of the plan, a step at a time.
    ///
    /// # Errors
    /// Those of the writer.
    ///
    /// ```
    /// use tiled_explain::{Explain, StepDetail};
    /// use tiled_graph::{Graph, Objective, PlanOptions, Planner, infer};
    /// use tiled_kernel::Reference;
    /// let graph = Graph::builtin("seed-001").expect("it is built in");
    /// let shapes = infer(&graph, 1, &[[16, 16]])?;
    /// let objective = Objective::inference();
    /// let plan = Planner::<f32>::new(&graph, &shapes, &objective, &Reference).plan(&PlanOptions::default())?;
    /// let mut written = Vec::new();
    /// plan.write_json(&mut written, StepDetail::All).expect("memory does not fail");
    /// assert_eq!(written.first(), Some(&b'{'));
    /// # Ok::<(), tiled_graph::PlanError>(())
    /// ```
    fn write_json(&self, out: &mut dyn io::Write, detail: StepDetail) -> io::Result<()>;

    /// A picture of the plan: memory, tiles and halos of one step, and the rows that each node holds then.
    ///
    /// The SVG stands alone, without scripts and fonts of its own.
    ///
    /// ```
    /// use tiled_explain::Explain;
    /// use tiled_graph::{Graph, Objective, PlanOptions, Planner, infer};
    /// use tiled_kernel::Reference;
    /// let graph = Graph::builtin("seed-001").expect("it is built in");
    /// let shapes = infer(&graph, 1, &[[16, 16]])?;
    /// let objective = Objective::inference();
    /// let plan = Planner::<f32>::new(&graph, &shapes, &objective, &Reference).plan(&PlanOptions::default())?;
    /// assert!(plan.to_svg().starts_with("<svg xmlns="));
    /// # Ok::<(), tiled_graph::PlanError>(())
    /// ```
    #[must_use]
    fn to_svg(&self) -> String;

    /// The picture of [`Explain::to_svg`], with the memory measured against a budget.
    ///
    /// ```
    /// use tiled_explain::Explain;
    /// use tiled_graph::{Graph, Objective, PlanOptions, Planner, infer};
    /// use tiled_kernel::Reference;
    /// let graph = Graph::builtin("seed-001").expect("it is built in");
    /// let shapes = infer(&graph, 1, &[[16, 16]])?;
    /// let objective = Objective::inference();
    /// let plan = Planner::<f32>::new(&graph, &shapes, &objective, &Reference).plan(&PlanOptions::default())?;
    /// assert!(plan.to_svg_within(64 << 20).contains("budget 64.0 MiB"));
    /// # Ok::<(), tiled_graph::PlanError>(())
    /// ```
    #[must_use]
    fn to_svg_within(&self, budget_bytes: u64) -> String;
}

impl Explain for Plan {
    fn to_text(&self) -> String {
        text::write(self)
    }

    fn describe(&self, detail: StepDetail) -> Description<'_> {
        Description { plan: self, detail }
    }

    fn to_json(&self, detail: StepDetail) -> serde_json::Value {
        serde_json::to_value(self.describe(detail)).expect("invariant: a plan is plain data with string keys")
    }

    fn write_json(&self, out: &mut dyn io::Write, detail: StepDetail) -> io::Result<()> {
        self.describe(detail).serialize(&mut serde_json::Serializer::new(out)).map_err(io::Error::from)
    }

    fn to_svg(&self) -> String {
        svg::draw(self, None)
    }

    fn to_svg_within(&self, budget_bytes: u64) -> String {
        svg::draw(self, Some(budget_bytes))
    }
}
