//! The rows of the image across the nodes, enlarged about one step: the pyramid of a tile or the wave of windows.

use tiled_geometry::Interval;
use tiled_graph::{SweepNodeId, SweepPlan};

use super::super::facts::Facts;
use super::canvas::{Anchor, Canvas, Rect};
use super::moment::Moment;
use super::style::{MARGIN, WIDTH};

/// The most nodes that have a bar.
pub(super) const BARS: usize = 48;
const HEIGHT: f64 = 300.0;
const AXIS: f64 = 64.0;

/// Draws a bar for each of these nodes; returns the height taken. Rows of a node of fewer rows than the image
/// are drawn where they lie in the image.
pub(super) fn draw(
    canvas: &mut Canvas,
    y: f64,
    sweep: &SweepPlan,
    nodes: &[(SweepNodeId, Facts)],
    moment: &Moment,
) -> f64 {
    let Some((_, tallest)) = nodes.iter().max_by_key(|(_, facts)| facts.shape[2]) else { return 0.0 };
    let rows = tallest.shape[2].max(1) as f64;
    let (low, high) = shown(nodes, moment, rows);
    let left = MARGIN + AXIS;
    let width = WIDTH - MARGIN - left;
    // names rise to the bars
    let longest = nodes.iter().map(|(_, facts)| facts.name.chars().count()).max().unwrap_or(0);
    let below = 16.0 + 5.2 * longest as f64;
    let frame = Rect::new(left, y, width, HEIGHT);
    let to_y = |row: f64| y + HEIGHT * (row - low) / (high - low);
    canvas.rect(frame, "image");
    draw_axis(canvas, frame, [low, high], &to_y);
    let step = width / nodes.len() as f64;
    let bar = (step * 0.72).min(46.0);
    for (number, (id, facts)) in nodes.iter().enumerate() {
        let state = moment.state(*id);
        let prefix = if facts.is_gradient() { "g" } else { "" };
        let middle = left + step * (number as f64 + 0.5);
        let scale = rows / facts.shape[2].max(1) as f64;
        let rect = |rows: Interval| {
            let (top, bottom) = (to_y(rows.begin() as f64 * scale), to_y(rows.end() as f64 * scale));
            Rect::new(middle - bar / 2.0, top, bar, bottom - top)
        };
        let region = state.region.rows();
        for (rows, class) in [(state.done, "done"), (state.held, "held"), (state.now, "now")] {
            if !rows.is_empty() {
                canvas.rect(rect(rows).at_least(1.5).clip(frame), &format!("{prefix}{class}"));
            }
        }
        let own = region.intersect(state.share.rows());
        if own.is_empty() {
            canvas.rect(rect(region).clip(frame), "halo");
        } else {
            for part in [Interval::new(region.begin(), own.begin()), Interval::new(own.end(), region.end())] {
                canvas.rect(rect(part).clip(frame), "halo");
            }
        }
        if !region.is_empty() {
            canvas.rect(rect(region).clip(frame), "outline");
        }
        let share = rect(state.share.rows());
        for border in [share.y, share.y + share.height] {
            if border > y + 1.0 && border < y + HEIGHT - 1.0 && sweep.grid.counts()[0] > 1 {
                canvas.line([middle - step / 2.0, border], [middle + step / 2.0, border], "tile");
            }
        }
        canvas.rising_text([middle + 5.0, y + HEIGHT + 14.0], "small", &facts.name);
    }
    canvas.rect(frame, "outline");
    HEIGHT + below + 14.0
}

/// The rows of the image that are shown: all that is held or computed, with a little room.
fn shown(nodes: &[(SweepNodeId, Facts)], moment: &Moment, rows: f64) -> (f64, f64) {
    let (mut low, mut high) = (rows, 0.0_f64);
    for (id, facts) in nodes {
        let state = moment.state(*id);
        let scale = rows / facts.shape[2].max(1) as f64;
        let busy = state.held.hull(state.now);
        if !busy.is_empty() {
            low = low.min(busy.begin() as f64 * scale);
            high = high.max(busy.end() as f64 * scale);
        }
    }
    if low >= high {
        return (0.0, rows);
    }
    let room = (0.12 * (high - low)).max(1.0);
    ((low - room).max(0.0), (high + room).min(rows))
}

/// Lines at round row numbers.
fn draw_axis(canvas: &mut Canvas, frame: Rect, [low, high]: [f64; 2], to_y: &impl Fn(f64) -> f64) {
    let distance = round_distance((high - low) / 6.0);
    let mut row = (low / distance).ceil() * distance;
    while row <= high {
        let y = to_y(row);
        canvas.line([frame.x - 5.0, y], [frame.x + frame.width, y], "axis");
        canvas.text([frame.x - 9.0, y + 4.0], Anchor::End, "small", &format!("{row:.0}"));
        row += distance;
    }
}

/// 1, 2 or 5 times a power of ten, at least `least` and at least one.
fn round_distance(least: f64) -> f64 {
    let mut distance = 1.0;
    loop {
        for factor in [1.0, 2.0, 5.0] {
            if factor * distance >= least {
                return factor * distance;
            }
        }
        distance *= 10.0;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn axis_steps_are_round() {
        assert_eq!(
            [0.1, 1.0, 1.5, 3.0, 70.0, 120.0].map(super::round_distance),
            [1.0, 1.0, 2.0, 5.0, 100.0, 200.0]
        );
    }
}
