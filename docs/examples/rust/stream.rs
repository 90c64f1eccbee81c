//! A network over an image that one closure reads and another writes, within a memory budget.

#![expect(clippy::print_stdout, reason = "an example prints")]
#![expect(clippy::cast_possible_truncation, reason = "sizes here are small")]
#![expect(clippy::cast_sign_loss, reason = "coordinates inside the image are not negative")]

use std::error::Error;
use std::sync::Mutex;

use tiled::exec::{FnSink, PointSource};
use tiled::prelude::*;
use tiled::tensor::View;

const C: usize = 3;
const H: usize = 192;
const W: usize = 160;
const O: usize = 32;

fn number(i: u32) -> f32 {
    (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 16_777_216.0 - 0.5
}

fn hash(values: &[f32]) -> u64 {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    bytes.fold(14_695_981_039_346_656_037, |h, byte| (h ^ u64::from(byte)).wrapping_mul(1_099_511_628_211))
}

fn main() -> Result<(), Box<dyn Error>> {
    let graph = Graph::builtin("light").ok_or("it is built in")?;
    let mut parameters = initialise::<f32>(&params(&graph), 7);
    let backend = CpuBackend::new()?;
    let shapes = infer(&graph, 1, &[[H, W]])?;
    let options = PlanOptions { memory_bytes: Some(8 << 20), parallelism: 2, ..PlanOptions::default() };
    let plan = Planner::<f32>::new(&graph, &shapes, &Objective::inference(), &backend).plan(&options)?;
    eprintln!("peak of {} bytes", plan.peak_bytes());
    let mut executor = Executor::new(plan, &backend, 2)?;

    let result = Mutex::new(vec![0.0; O * (H / 4) * (W / 4)]);
    let source =
        PointSource::new::<f32>("image", [1, C, H, W], |[_, c, y, x]| number(((c * H + y) * W + x) as u32))?;
    let write = |region: Region<2>, window: &View<'_, f32>| {
        let mut result = result.lock().expect("no writer panics");
        for c in 0..O {
            for y in region.rows().begin()..region.rows().end() {
                for x in region.cols().begin()..region.cols().end() {
                    result[(c * (H / 4) + y as usize) * (W / 4) + x as usize] = window.get(0, c, y, x);
                }
            }
        }
        Ok(())
    };
    let sink = FnSink::new::<f32>("result", [1, O, H / 4, W / 4], write)?;
    let io = Io { inputs: vec![&source], outputs: vec![&sink], ..Io::default() };
    executor.run(&mut parameters, &io, &NoProgress)?;
    drop(sink);

    println!("stream {:016x}", hash(&result.into_inner()?));
    Ok(())
}
