//! What the examples share: kernels, and the drawing of losses.

use std::path::Path;

use plotters::prelude::{
    ChartBuilder, Color, DrawingAreaErrorKind, DrawingBackend, IntoDrawingArea, IntoFont, LineSeries,
    RGBColor, SVGBackend, WHITE,
};
use tiled_cpu::CpuBackend;
use tiled_exec::write_whole;

/// What an example may fail with.
pub(crate) type Outcome<R> = Result<R, Box<dyn std::error::Error>>;

/// The kernels of this CPU, for as long as the program runs.
pub(crate) fn kernels() -> Outcome<&'static CpuBackend> {
    Ok(Box::leak(Box::new(CpuBackend::new()?)))
}

/// Draws losses over steps as an SVG file, on a logarithmic axis; folders are made.
pub(crate) fn draw_losses(path: &Path, caption: &str, losses: &[f32]) -> Outcome<()> {
    let mut text = String::new();
    draw(&mut text, caption, losses).map_err(|error| error.to_string())?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    Ok(write_whole(path, text.as_bytes())?)
}

type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

fn draw<'a>(text: &'a mut String, caption: &str, losses: &[f32]) -> Result<(), DrawError<'a>> {
    use plotters::coord::combinators::IntoLogRange;
    let root = SVGBackend::with_string(text, (720, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    let positive = || losses.iter().copied().filter(|loss| loss.is_finite() && *loss > 0.0);
    let low = positive().fold(f32::INFINITY, f32::min).min(1.0);
    let high = positive().fold(f32::NEG_INFINITY, f32::max).max(low * 2.0);
    let steps = u32::try_from(losses.len()).unwrap_or(u32::MAX).max(2);
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 18).into_font())
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(1..steps, (low..high).log_scale())?;
    chart.configure_mesh().x_desc("step").y_desc("loss").light_line_style(WHITE).draw()?;
    let points = (1_u32..).zip(losses.iter().copied()).filter(|(_, loss)| loss.is_finite() && *loss > 0.0);
    chart.draw_series(LineSeries::new(points, RGBColor(0x1f, 0x6f, 0xb4).stroke_width(1)))?;
    root.present()
}
