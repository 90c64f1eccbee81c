//! Models that are refused for a choice between two graphs.

use super::start;
use crate::build::{Attribute, Builder};

pub(super) fn of_branches() -> Vec<(&'static str, Builder)> {
    let relu = || start().node("Relu", &["x"], "r", &[]).output("r");
    let nest = |within: Attribute, from: Builder| {
        from.ints("yes", &[], &[1]).node("If", &["yes"], "r", &[("then_branch", within)]).output("r")
    };
    let of = |branch: Attribute| nest(branch, start());
    let asked = start()
        .ints("two", &[1], &[2])
        .node("Shape", &["x"], "s", &[])
        .node("Gather", &["s", "two"], "g", &[])
        .node("Equal", &["g", "two"], "c", &[]);
    let branches = [("then_branch", relu().branch()), ("else_branch", relu().branch())];
    let deep = (0..17).fold(relu().branch(), |within, _| nest(within, start()).branch());
    vec![
        ("condition_of_a_size", asked.node("If", &["c"], "y", &branches).output("y")),
        ("branch_missing", start().ints("no", &[], &[0]).node("If", &["no"], "y", &[]).output("y")),
        ("branch_with_inputs", of(relu().body())),
        ("branch_of_fewer_outputs", of(start().node("Relu", &["x"], "r", &[]).branch())),
        ("branch_too_deep", of(deep)),
        ("loop", start().node("Loop", &["", "", "x"], "y", &[("body", relu().body())]).output("y")),
    ]
}
