//! The drawing of losses.

use std::path::Path;

use plotters::prelude::{
    ChartBuilder, Color, DrawingAreaErrorKind, IntoDrawingArea, IntoFont, LineSeries, RGBColor, SVGBackend,
    WHITE,
};

use tiled::exec::write_whole;

use crate::error::CliError;

/// Draws the losses of training steps as an SVG file.
pub(crate) fn draw_losses(path: &Path, losses: &[f64]) -> Result<(), CliError> {
    let mut text = String::new();
    draw(&mut text, losses)
        .map_err(|error| CliError::Chart { path: path.to_path_buf(), reason: error.to_string() })?;
    Ok(write_whole(path, text.as_bytes())?)
}

type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as plotters::prelude::DrawingBackend>::ErrorType>;

fn draw<'a>(text: &'a mut String, losses: &[f64]) -> Result<(), DrawError<'a>> {
    let root = SVGBackend::with_string(text, (720, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    let finite = || losses.iter().copied().filter(|loss| loss.is_finite());
    let low = finite().fold(f64::INFINITY, f64::min).min(0.0);
    let high = finite().fold(f64::NEG_INFINITY, f64::max);
    let high = if high > low { high + 0.05 * (high - low) } else { low + 1.0 };
    let steps = u32::try_from(losses.len()).unwrap_or(u32::MAX);
    let mut chart = ChartBuilder::on(&root)
        .caption("loss of the whole image", ("sans-serif", 18).into_font())
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(1..steps.max(2), low..high)?;
    chart.configure_mesh().x_desc("step").y_desc("loss").light_line_style(WHITE).draw()?;
    let points = (1_u32..).zip(losses.iter().copied()).filter(|(_, loss)| loss.is_finite());
    chart.draw_series(LineSeries::new(points, RGBColor(0x1f, 0x6f, 0xb4).stroke_width(2)))?;
    root.present()
}

#[cfg(test)]
mod tests {
    use super::draw;

    #[test]
    fn every_series_of_losses_can_be_drawn() {
        for losses in [&[][..], &[1.0], &[2.0, 1.0, 0.5], &[0.0, 0.0], &[f64::NAN, 1.0], &[-3.0, -4.0]] {
            let mut text = String::new();
            draw(&mut text, losses).expect("draws into memory");
            assert!(text.starts_with("<svg"), "{losses:?}");
        }
    }
}
