//! What importing a model takes whose nodes stand in a branch: no more than where they do not.
//!
//! One test alone, so that nothing else in the process takes memory meanwhile.

#[path = "peak/chain.rs"]
mod chain;
mod peak;

#[test]
fn importing_a_branch_takes_at_most_four_times_the_file() {
    if let Some(model) = peak::read_within_four_times(chain::model(300_000, true)) {
        assert_eq!(model.graph.nodes().len(), 300_000);
    }
}
