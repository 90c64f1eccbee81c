//! `tiled net`: the networks that are built in, and the text of one.

use tiled::graph::{Graph, builtin_names, params};
use tiled::network::Network;

use crate::args::NetArgs;
use crate::error::CliError;
use crate::report::print;
use crate::text::escape_json;

pub(crate) fn run(args: &NetArgs) -> Result<(), CliError> {
    match &args.net {
        Some(name) => print(escape_json(&Network::load(name)?.graph.try_to_json()?).trim_end()),
        None => builtin_names().filter_map(|name| Some((name, Graph::builtin(name)?))).try_for_each(list),
    }
}

fn list((name, graph): (&str, Graph)) -> Result<(), CliError> {
    let trained: usize =
        params(&graph).iter().filter(|spec| spec.kind.is_trained()).map(|spec| spec.elements()).sum();
    let channels = |of: Vec<usize>| of.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let inputs = channels(graph.inputs().iter().map(|input| input.channels).collect());
    let outputs = channels(graph.outputs().iter().map(|output| graph.channels(*output)).collect());
    let nodes = graph.nodes().len();
    print(&format!(
        "{name:10} {inputs:>2} channels to {outputs:>4}, {nodes:3} nodes, {trained:>10} trained parameters"
    ))
}
