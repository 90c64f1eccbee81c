//! What importing a model takes: at most four times its file and 64 MiB.
//!
//! One test alone, so that nothing else in the process takes memory meanwhile.

#[path = "peak/chain.rs"]
mod chain;
mod peak;

#[test]
fn importing_takes_at_most_four_times_the_file() {
    let nodes = std::env::var("TILED_NODES").ok().and_then(|nodes| nodes.parse().ok()).unwrap_or(1_000_000);
    if let Some(model) = peak::read_within_four_times(chain::model(nodes, false)) {
        assert_eq!(model.graph.nodes().len(), nodes);
    }
}
