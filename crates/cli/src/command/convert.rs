//! `tiled convert`: the network and the weights of an ONNX file, as files of their own.

use std::path::Path;

use tiled::exec::{WrittenFile, write_weights};
use tiled::graph::{merge, try_params};
use tiled::network::{NetworkError, own_parameters};
use tiled::onnx;
use tiled::tensor::Element;

use crate::args::{ConvertArgs, DTypeArg};
use crate::error::CliError;
use crate::files::Files;
use crate::job::wrote;
use crate::progress::Session;
use crate::report::print;
use crate::text::escape_json;

pub(crate) fn run(args: &ConvertArgs, session: &Session) -> Result<(), CliError> {
    let files = Files::default().reads("model", [args.model.as_path()]);
    files.writes("net", [&args.net]).writes("weights", [&args.weights]).check()?;
    match args.dtype {
        DTypeArg::F32 => run_as::<f32>(args, session),
        DTypeArg::F64 => run_as::<f64>(args, session),
    }
}

fn run_as<T: Element>(args: &ConvertArgs, session: &Session) -> Result<(), CliError> {
    let model = onnx::read(&args.model).map_err(|source| NetworkError::of_model(&args.model, source))?;
    session.check()?;
    let mut graph = model.graph;
    let mut parameters = own_parameters::<T>(model.weights, &args.model)?;
    session.check()?;
    let mut merged = String::new();
    if args.merge {
        let other = merge(&graph, parameters)?;
        merged = format!(", convolutions merged: {}", other.convolutions);
        (graph, parameters) = (other.graph, other.parameters);
        session.check()?;
    }
    // neither takes its name without the other
    let net = WrittenFile::of_bytes(&args.net, escape_json(&graph.try_to_json()?).as_bytes())?;
    let weights = write_weights(&args.weights, parameters.tensors())?;
    session.check()?;
    weights.finish()?;
    net.finish()?;
    let elements: usize = try_params(&graph)?.iter().map(|spec| spec.elements()).sum();
    let line = |path: &Path| print(&wrote(path, &[]));
    print(&format!("{} nodes, {elements} parameters{merged}", graph.nodes().len()))?;
    line(&args.net)?;
    line(&args.weights)
}
