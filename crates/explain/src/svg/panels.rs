//! Each node as a picture of its whole tensor: what the step computes of it, and what is held.

use tiled_geometry::{Interval, Region};
use tiled_graph::{SweepNodeId, SweepPlan};

use super::super::facts::Facts;
use super::super::number;
use super::canvas::{Anchor, Canvas, Rect};
use super::moment::{Moment, State};
use super::style::{MARGIN, WIDTH};

/// The most nodes that have a panel.
pub(super) const PANELS: usize = 12;
const GAP: f64 = 16.0;
const CAPTION: f64 = 94.0;
/// The least height of a band, in pixels, so that it can be seen in a tall image.
const THINNEST: f64 = 2.0;

/// The least distance between lines at which pixels of the tensor are ruled.
const RULED: f64 = 5.0;

/// Draws a panel for each of these nodes; returns the height taken.
pub(super) fn draw(
    canvas: &mut Canvas,
    y: f64,
    sweep: &SweepPlan,
    nodes: &[(SweepNodeId, Facts)],
    moment: &Moment,
) -> f64 {
    // one row of up to seven, else two rows
    let columns = if nodes.len() <= 7 { nodes.len() } else { nodes.len().div_ceil(2) }.max(5);
    let side = (WIDTH - 2.0 * MARGIN + GAP) / columns as f64 - GAP;
    let tallest = nodes.iter().map(|(_, facts)| drawn_size(facts, side)[0]).fold(0.0, f64::max);
    let mut top = y;
    for row in nodes.chunks(columns) {
        for (column, (id, facts)) in row.iter().enumerate() {
            let x = MARGIN + column as f64 * (side + GAP);
            let [height, width] = drawn_size(facts, side);
            let frame = Rect::new(x, top, width, height);
            draw_tensor(canvas, frame, sweep, facts, moment.state(*id));
            draw_caption(canvas, [x, top + tallest + 16.0], side, facts, moment.state(*id));
        }
        top += tallest + CAPTION;
    }
    top - y
}

/// Height and width in pixels of a tensor drawn to scale in a square of this side.
fn drawn_size(facts: &Facts, side: f64) -> [f64; 2] {
    let [_, _, height, width] = facts.shape.map(|size| size.max(1) as f64);
    let scale = side / height.max(width);
    // a strip of a tensor is still seen
    [(height * scale).max(8.0), (width * scale).max(8.0)]
}

fn draw_tensor(canvas: &mut Canvas, frame: Rect, sweep: &SweepPlan, facts: &Facts, state: &State) {
    let prefix = if facts.is_gradient() { "g" } else { "" };
    let scale = Scale { frame, height: facts.shape[2] as f64, width: facts.shape[3] as f64 };
    canvas.titled_rect(frame, "image", &format!("{}: {}", facts.name, facts.kernel));
    let cols = state.region.cols();
    for (rows, class) in [(state.done, "done"), (state.held, "held"), (state.now, "now")] {
        if !rows.is_empty() {
            let rect = scale.rect(Region::from_rows_cols(rows, cols)).at_least(THINNEST).clip(frame);
            canvas.rect(rect, &format!("{prefix}{class}"));
        }
    }
    for part in outside(state.region, state.share) {
        canvas.rect(scale.rect(part), "halo");
    }
    let [heights, widths] = scale.pixel();
    let ruled = |distance: f64| distance >= RULED;
    if ruled(heights) && ruled(widths) {
        for line in 1..facts.shape[2] {
            let y = frame.y + line as f64 * heights;
            canvas.line([frame.x, y], [frame.x + frame.width, y], "pixel");
        }
        for line in 1..facts.shape[3] {
            let x = frame.x + line as f64 * widths;
            canvas.line([x, frame.y], [x, frame.y + frame.height], "pixel");
        }
    }
    draw_tiles(canvas, &scale, sweep, facts);
    canvas.rect(frame, "outline");
}

/// The borders between the tiles' shares, unless they are too close to tell apart.
fn draw_tiles(canvas: &mut Canvas, scale: &Scale, sweep: &SweepPlan, facts: &Facts) {
    let frame = scale.frame;
    let counts = sweep.grid.counts();
    let extents = [facts.shape[2], facts.shape[3]].map(|size| i64::try_from(size).unwrap_or(i64::MAX));
    let sides = [frame.height, frame.width];
    for axis in [0, 1] {
        if sides[axis] / (counts[axis] as f64) < 4.0 {
            continue;
        }
        for part in 1..counts[axis] {
            let begin = sweep.grid.share(axis, part, extents[axis]).begin() as f64;
            let at = begin * scale.pixel()[axis];
            if axis == 0 {
                canvas.line([frame.x, frame.y + at], [frame.x + frame.width, frame.y + at], "tile");
            } else {
                canvas.line([frame.x + at, frame.y], [frame.x + at, frame.y + frame.height], "tile");
            }
        }
    }
}

fn draw_caption(canvas: &mut Canvas, [x, y]: [f64; 2], side: f64, facts: &Facts, state: &State) {
    let [_, channels, height, width] = facts.shape;
    let mut line = |number: f64, class: &str, text: &str| {
        canvas.text([x, y + 14.0 * number], Anchor::Start, class, text);
    };
    line(0.0, "name", &shortened(&facts.name, side / 8.0));
    line(1.0, "small", &shortened(&facts.kernel, side / 6.5));
    line(2.0, "small", &format!("{channels} × {height} × {width}"));
    let cols = state.region.cols();
    let step = match state.now {
        rows if rows.is_empty() => "not in this step".to_owned(),
        rows => format!("{rows} × {cols}"),
    };
    line(3.0, "small", &step);
    if facts.ring_rows > 0 {
        line(4.0, "small", &format!("ring: {} rows, {}", facts.ring_rows, number::bytes(facts.window_bytes)));
    }
}

/// At most so many letters of a name, its end among them: `layer3_0_dow….grad_input`.
fn shortened(name: &str, most: f64) -> String {
    const END: usize = 11;
    let letters: Vec<char> = name.chars().collect();
    let excess = (0..letters.len()).find(|dropped| (letters.len() - dropped) as f64 <= most).unwrap_or(0);
    if excess == 0 || letters.len() <= END + excess + 1 {
        return name.to_owned();
    }
    let begin = letters[..letters.len() - END - excess - 1].iter();
    begin.chain(&['…']).chain(&letters[letters.len() - END..]).collect()
}

/// The part of a region outside another one: above, below, left, right.
fn outside(region: Region<2>, share: Region<2>) -> Vec<Region<2>> {
    let (rows, cols) = (region.rows(), region.cols());
    let inner = region.intersect(share);
    if inner.is_empty() {
        return vec![region];
    }
    let between = |begin: i64, end: i64| Interval::new(begin, end);
    [
        (between(rows.begin(), inner.rows().begin()), cols),
        (between(inner.rows().end(), rows.end()), cols),
        (inner.rows(), between(cols.begin(), inner.cols().begin())),
        (inner.rows(), between(inner.cols().end(), cols.end())),
    ]
    .into_iter()
    .map(|(rows, cols)| Region::from_rows_cols(rows, cols))
    .filter(|part| !part.is_empty())
    .collect()
}

/// From coordinates of a tensor to pixels of its frame.
struct Scale {
    frame: Rect,
    height: f64,
    width: f64,
}

impl Scale {
    /// The size of an element: height, width.
    fn pixel(&self) -> [f64; 2] {
        [self.frame.height / self.height.max(1.0), self.frame.width / self.width.max(1.0)]
    }

    fn rect(&self, region: Region<2>) -> Rect {
        let [height, width] = self.pixel();
        let (rows, cols) = (region.rows(), region.cols());
        Rect::new(
            self.frame.x + cols.begin() as f64 * width,
            self.frame.y + rows.begin() as f64 * height,
            cols.len() as f64 * width,
            rows.len() as f64 * height,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(shortened("conv1", 22.0), "conv1");
        let short = shortened("layer3_0_downsample_0.grad_input", 22.0);
        assert_eq!((short.as_str(), short.chars().count()), ("layer3_0_d….grad_input", 22));
    }
}
