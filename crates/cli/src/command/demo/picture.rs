//! The pictures of the demo.

use std::path::{Path, PathBuf};

use tiled::exec::{Executor, Io, MemorySink, MemorySource, Source, open_source};
use tiled::geometry::Region;
use tiled::graph::{Graph, Objective, Parameters, Planner, infer_nchw};
use tiled::tensor::{Layout, Tensor, TensorError, ViewMut, zeros};

use super::Demo;
use crate::error::CliError;

/// The picture and the target: the shipped pair, or the picture that was given for both.
pub(super) fn paths(given: Option<&Path>) -> (PathBuf, PathBuf) {
    match given {
        Some(path) => (path.to_path_buf(), path.to_path_buf()),
        None => {
            let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
            (assets.join("blue_marble_5400x2700.jpg"), assets.join("etopo1_relief_5400x2700.jpg"))
        }
    }
}

impl Demo<'_> {
    /// A picture at a quarter of its resolution, each pixel the mean of 4×4: a tiled run of its own.
    pub(super) fn quarter(&self, path: &Path) -> Result<MemorySource<'static, f32>, CliError> {
        let picture = open_source::<f32>(path)?;
        let graph = Graph::from_json(QUARTER)?;
        let shapes = infer_nchw(&graph, &[picture.shape()])?;
        let sink = MemorySink::new(shapes.shape(graph.outputs()[0]))?;
        let objective = Objective::inference();
        let held = picture.resident_bytes() + (size_of::<f32>() * shapes.elements(graph.outputs()[0])) as u64;
        let plan = Planner::new(&graph, &shapes, &objective, self.backend()).plan(&self.options(held))?;
        let io = Io { inputs: vec![&*picture], outputs: vec![&sink], ..Io::default() };
        Executor::new(plan, self.backend(), self.threads)?.run(
            &mut Parameters::zeros(&[])?,
            &io,
            &self.session.bar("target"),
        )?;
        Ok(MemorySource::from_tensor(sink.into_tensor())?)
    }
}

/// A region of a source as a tensor of its own.
pub(super) fn cut(source: &dyn Source<f32>, region: Region<2>) -> Result<Tensor<f32>, CliError> {
    let [batch, channels, ..] = source.shape();
    let layout = Layout::new(batch, channels, 1, region, usize::try_from(region.rows().len()).unwrap_or(0))
        .map_err(TensorError::from)?;
    let mut data = zeros(layout.len()).map_err(TensorError::from)?;
    source.read(region, &mut ViewMut::new(&mut data, layout))?;
    let window = tiled::tensor::View::new(&data, layout);
    let [height, width] = region.axes().map(|axis| usize::try_from(axis.len()).unwrap_or(0));
    let (top, left) = (region.rows().begin(), region.cols().begin());
    let place = |offset: usize| i64::try_from(offset).unwrap_or(i64::MAX);
    Ok(Tensor::from_fn([batch, channels, height, width], |[n, c, y, x]| {
        window.get(n, c, top + place(y), left + place(x))
    })?)
}

const QUARTER: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
    "nodes": [{"name": "mean", "op": "avg_pool2d", "inputs": ["x"], "kernel_size": 4}], "outputs": ["mean"]}"#;
