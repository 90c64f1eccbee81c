//! Colours and letters of the pictures, and their legend.

use super::super::facts::Holding;
use super::canvas::{Anchor, Canvas, Rect};

/// The width of a picture in pixels, and its margin.
pub(super) const WIDTH: f64 = 1200.0;
pub(super) const MARGIN: f64 = 32.0;

/// The colours of the parts of the memory, in order.
pub(super) const PART_CLASSES: [&str; 10] = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9"];

/// Style sheet and the pattern of halos. Forward nodes are blue, gradients orange.
pub(super) const STYLE: &str = r##"<defs>
<pattern id="halo" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="3.4" height="6" fill="#ffffff" fill-opacity="0.72"/></pattern>
</defs>
<style>
text { font-family: "Helvetica Neue", Helvetica, Arial, "DejaVu Sans", sans-serif; font-size: 12px; fill: #24303c; }
.title { font-size: 22px; font-weight: bold; }
.heading { font-size: 15px; font-weight: bold; }
.name { font-size: 12px; font-weight: bold; }
.small { font-size: 11px; fill: #5a6875; }
.paper { fill: #fcfcfa; }
.image { fill: #ffffff; stroke: none; }
.outline { fill: none; stroke: #5a6875; stroke-width: 1; }
.tile { stroke: #8a97a3; stroke-width: 1; stroke-dasharray: 4 3; }
.pixel { stroke: #24303c; stroke-opacity: 0.10; stroke-width: 1; }
.axis { stroke: #c9d1d8; stroke-width: 1; }
.done { fill: #e3ecf4; } .held { fill: #9ec5e8; } .now { fill: #2468a8; }
.gdone { fill: #f8e8d8; } .gheld { fill: #f3c08c; } .gnow { fill: #c8640f; }
.halo { fill: url(#halo); }
.box { fill: none; stroke: #24303c; stroke-width: 1; }
.free { fill: #eceff1; }
.budget { stroke: #b3261e; stroke-width: 2; }
.p0 { fill: #2468a8; } .p1 { fill: #2f9e8f; } .p2 { fill: #c8640f; } .p3 { fill: #8a5fb0; }
.p4 { fill: #b9a12c; } .p5 { fill: #7d8b97; } .p6 { fill: #b3261e; } .p7 { fill: #4f7d5a; }
.p8 { fill: #94486b; } .p9 { fill: #3f4a54; }
</style>
"##;

/// Draws what the colours mean; returns the height taken.
pub(super) fn draw_legend(canvas: &mut Canvas, y: f64, hold: Holding, has_gradients: bool) -> f64 {
    let mut x = MARGIN;
    let mut entry = |canvas: &mut Canvas, swatch: f64, text: &str| {
        let at = x;
        canvas.text([at + swatch + 6.0, y + 11.5], Anchor::Start, "label", text);
        x += swatch + 6.0 + 6.9 * text.chars().count() as f64 + 20.0;
        at
    };
    let mut colours = vec![("now", "computed in this step")];
    if hold == Holding::Slide {
        colours.extend([("held", "held from earlier steps"), ("done", "computed before, dropped")]);
    }
    let prefixes: &[&str] = if has_gradients { &["", "g"] } else { &[""] };
    for (class, text) in colours {
        let at = entry(canvas, 16.0 * prefixes.len() as f64 - 2.0, text);
        for (number, prefix) in prefixes.iter().enumerate() {
            let swatch = Rect::new(at + 16.0 * number as f64, y, 14.0, 14.0);
            canvas.rect(swatch, &format!("{prefix}{class}"));
        }
    }
    if hold == Holding::Materialise {
        return 24.0; // there are no tiles
    }
    let at = entry(canvas, 14.0, "halo: outside the tile's own share");
    canvas.rect(Rect::new(at, y, 14.0, 14.0), "now");
    canvas.rect(Rect::new(at, y, 14.0, 14.0), "halo");
    let at = entry(canvas, 20.0, "borders of tiles");
    canvas.line([at, y + 7.0], [at + 20.0, y + 7.0], "tile");
    24.0
}
