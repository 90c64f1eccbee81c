//! Measures a network on a picture of bytes that lies in chunks, beside the same picture in an `.npy` file, in turns.
//!
//! ```text
//! cargo run --release -p tiled --example chunk_speed -- light 4096 256 2 256 3
//! ```
//!
//! Arguments: network, extent of the square picture, memory in MiB, threads, extent of a chunk, runs. Both pictures are files in the
//! folder for temporary files, each chunk in one piece; what is read is in the system's cache after the first run.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tiled::exec::{ChunkedSource, FnSink, IoError, open_source, peak_rss_bytes, reset_peak_rss};
use tiled::graph::program::SourceRole;
use tiled::graph::{Chunks, Plan};
use tiled::prelude::{
    CpuBackend, Executor, Graph, Io, NoProgress, Objective, PlanOptions, Planner, Source, infer_nchw,
    initialise, params,
};

/// The picture: files that go when it is dropped.
struct Picture {
    npy: PathBuf,
    chunks: PathBuf,
}

impl Drop for Picture {
    fn drop(&mut self) {
        for path in [&self.npy, &self.chunks] {
            let _ = std::fs::remove_file(path); // nobody is left to hear of it
        }
    }
}

impl Picture {
    fn new([channels, extent, chunk]: [usize; 3]) -> std::io::Result<Self> {
        let name =
            |kind: &str| std::env::temp_dir().join(format!("chunk_speed_{}.{kind}", std::process::id()));
        let picture = Self { npy: name("npy"), chunks: name("chunks") };
        let value = |c: usize, y: usize, x: usize| {
            ((x * 31 + y * 17 + c * 101 + (x * y) / 4096) % 256).to_le_bytes()[0]
        };
        let mut npy = BufWriter::new(File::create(&picture.npy)?);
        let mut header = format!(
            "{{'descr': '|u1', 'fortran_order': False, 'shape': (1, {channels}, {extent}, {extent}), }}"
        );
        while (10 + header.len() + 1) % 64 != 0 {
            header.push(' ');
        }
        header.push('\n');
        npy.write_all(b"\x93NUMPY\x01\x00")?;
        npy.write_all(&u16::try_from(header.len()).unwrap_or(u16::MAX).to_le_bytes())?;
        npy.write_all(header.as_bytes())?;
        let mut row = vec![0; extent];
        for c in 0..channels {
            for y in 0..extent {
                row.iter_mut().enumerate().for_each(|(x, byte)| *byte = value(c, y, x));
                npy.write_all(&row)?;
            }
        }
        npy.flush()?;
        let mut chunks = BufWriter::new(File::create(&picture.chunks)?);
        let across = extent.div_ceil(chunk);
        let mut row = vec![0; chunk];
        for place in 0..across * across {
            let (top, left) = (place / across * chunk, place % across * chunk);
            for c in 0..channels {
                for y in top..top + chunk {
                    row.iter_mut().enumerate().for_each(|(x, byte)| *byte = value(c, y, left + x));
                    chunks.write_all(&row)?;
                }
            }
        }
        chunks.flush()?;
        Ok(picture)
    }
}

/// What a run took: seconds, its peak beyond what the process had, and what it wrote, whatever the order.
fn run(
    graph: &Graph,
    plan: Plan,
    shape: [usize; 4],
    threads: usize,
    source: &dyn Source<f32>,
) -> Result<(f64, u64, u64), Box<dyn Error>> {
    let backend = CpuBackend::new()?;
    let sum = AtomicU64::new(0);
    let sink = FnSink::new("y", shape, |region, view: &tiled::tensor::View<'_, f32>| {
        let mut own = 0_u64;
        for n in 0..shape[0] {
            for c in 0..shape[1] {
                for y in region.rows().begin()..region.rows().end() {
                    for x in region.cols().begin()..region.cols().end() {
                        own = own.wrapping_add(u64::from(view.get(n, c, y, x).to_bits()));
                    }
                }
            }
        }
        sum.fetch_add(own, Ordering::Relaxed);
        Ok(())
    })?;
    let io = Io { inputs: vec![source], outputs: vec![&sink], ..Io::default() };
    let mut parameters = initialise(&params(graph), 1);
    reset_peak_rss();
    let mut executor = Executor::new(plan, &backend, threads)?;
    let begin = Instant::now();
    executor.run(&mut parameters, &io, &NoProgress)?;
    let seconds = begin.elapsed().as_secs_f64();
    Ok((seconds, peak_rss_bytes().unwrap_or(0), sum.load(Ordering::Relaxed)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |otherwise: &str| arguments.next().unwrap_or_else(|| otherwise.to_owned());
    let network = next("light");
    let numbers: Vec<usize> = ["4096", "256", "2", "256", "3"]
        .map(|otherwise| next(otherwise).parse())
        .into_iter()
        .collect::<Result<_, _>>()?;
    let [extent, mebibytes, threads, chunk, runs] = numbers[..] else {
        unreachable!("invariant: there are five")
    };
    let graph = Graph::builtin(&network).ok_or("no such network")?;
    let shape = [1, graph.inputs()[0].channels, extent, extent];
    let shapes = infer_nchw(&graph, &[shape])?;
    let backend = CpuBackend::new()?;
    let objective = Objective::inference();
    let planner = Planner::<f32>::new(&graph, &shapes, &objective, &backend);
    let memory_bytes = Some((mebibytes as u64) << 20);
    let options = PlanOptions { memory_bytes, parallelism: threads, ..PlanOptions::default() };
    let chunks = Chunks::new([chunk, chunk], 1).ok_or("chunks of nothing")?;
    let with_chunks = PlanOptions { chunks: vec![(SourceRole::Input(0), chunks)], ..options.clone() };
    let picture = Picture::new([shape[1], extent, chunk])?;
    let npy = open_source::<f32>(Path::new(&picture.npy))?;
    let file = File::open(&picture.chunks)?;
    let across = extent.div_ceil(chunk);
    let reads: Vec<AtomicU64> = (0..across * across).map(|_| AtomicU64::new(0)).collect();
    let chunked = ChunkedSource::new("chunks", shape, [chunk, chunk], |[row, col], bytes: &mut [u8]| {
        let place = row * across + col;
        reads[place].fetch_add(1, Ordering::Relaxed);
        let failed = |source| IoError::Read { path: picture.chunks.clone(), source };
        file.read_exact_at(bytes, (place * bytes.len()) as u64).map_err(failed)
    })?;
    let output_shape = shapes.shape(graph.outputs()[0]);
    let mut seconds = [Vec::new(), Vec::new()];
    println!(
        "source   seconds  plan MiB  peak MiB  chunk bytes  reads stated/made  most of one  sum of bits"
    );
    for number in 0..=runs {
        for (which, (name, options)) in [("npy", &options), ("chunks", &with_chunks)].into_iter().enumerate()
        {
            let plan = planner.plan(options)?;
            let (bytes, held, [stated, _]) =
                (plan.peak_bytes(), plan.memory.chunks_bytes, plan.chunk_reads());
            let source: &dyn Source<f32> = if which == 0 { &*npy } else { &chunked };
            let (took, peak, sum) = run(&graph, plan, output_shape, threads, source)?;
            let made: Vec<u64> = reads.iter().map(|reads| reads.swap(0, Ordering::Relaxed)).collect();
            let (total, most) = (made.iter().sum::<u64>(), made.iter().max().copied().unwrap_or(0));
            println!(
                "{name:8} {took:7.2}  {:8.1}  {:8.1}  {held:11}  {stated:8}/{total:8}  {most:11}  {sum:016x}",
                mib(bytes),
                mib(peak)
            );
            if number > 0 || runs == 0 {
                seconds[which].push(took);
            }
        }
    }
    let [npy, chunks] = seconds.map(|mut seconds| {
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    });
    println!("chunks take {:.3} times as long", chunks / npy);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a number to look at")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
