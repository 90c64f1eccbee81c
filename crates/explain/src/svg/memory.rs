//! The memory of a plan as a bar, against the budget where there is one.

use tiled_graph::Plan;

use super::super::number;
use super::canvas::{Anchor, Canvas, Rect};
use super::style::{MARGIN, PART_CLASSES, WIDTH};

/// Draws the bar and what its parts are; returns the height taken.
pub(super) fn draw(canvas: &mut Canvas, y: f64, plan: &Plan, budget: Option<u64>) -> f64 {
    const BAR: f64 = 24.0;
    let width = WIDTH - 2.0 * MARGIN;
    let peak = plan.peak_bytes();
    let full = budget.unwrap_or(0).max(peak).max(1) as f64;
    canvas.text([MARGIN, y + 12.0], Anchor::Start, "heading", "Memory");
    let against = budget.map_or_else(String::new, |budget| {
        format!(" of a budget of {} ({})", number::bytes(budget), number::percent(peak as f64, budget as f64))
    });
    canvas.text(
        [MARGIN + 80.0, y + 12.0],
        Anchor::Start,
        "label",
        &format!("peak {}{against}", number::bytes(peak)),
    );
    let top = y + 22.0;
    canvas.rect(Rect::new(MARGIN, top, width, BAR), "free");
    let (mut x, mut label_x, mut label_y) = (MARGIN, MARGIN, top + BAR + 18.0);
    for ((name, bytes), class) in plan.memory.parts().into_iter().zip(PART_CLASSES) {
        if bytes == 0 {
            continue;
        }
        let text =
            format!("{name} {} ({})", number::bytes(bytes), number::percent(bytes as f64, peak as f64));
        let part = width * bytes as f64 / full;
        canvas.titled_rect(Rect::new(x, top, part, BAR), class, &text);
        x += part;
        let label = 30.0 + 6.8 * text.chars().count() as f64;
        if label_x + label > WIDTH - MARGIN {
            (label_x, label_y) = (MARGIN, label_y + 18.0);
        }
        canvas.rect(Rect::new(label_x, label_y - 10.0, 12.0, 12.0), class);
        canvas.text([label_x + 18.0, label_y], Anchor::Start, "label", &text);
        label_x += label;
    }
    if let Some(budget) = budget {
        let x = MARGIN + width * budget as f64 / full;
        canvas.line([x, top - 4.0], [x, top + BAR + 4.0], "budget");
        let text = format!("budget {}", number::bytes(budget));
        canvas.text([x, top - 8.0], Anchor::End, "small", &text);
    }
    label_y + 26.0 - y
}
