//! Shapes and words as SVG elements.

use std::fmt::Write;

/// A rectangle in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Rect {
    pub(super) const fn new(x: f64, y: f64, width: f64, height: f64) -> Self {
        Self { x, y, width, height }
    }

    /// The same rectangle, at least this high, about its middle.
    pub(super) fn at_least(self, height: f64) -> Self {
        let grow = (height - self.height).max(0.0);
        Self { y: self.y - grow / 2.0, height: self.height + grow, ..self }
    }

    /// The part that lies in another one.
    pub(super) fn clip(self, other: Self) -> Self {
        let (x, y) = (self.x.max(other.x), self.y.max(other.y));
        let right = (self.x + self.width).min(other.x + other.width);
        let bottom = (self.y + self.height).min(other.y + other.height);
        Self { x, y, width: (right - x).max(0.0), height: (bottom - y).max(0.0) }
    }
}

/// How a text lies about its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    End,
}

/// A picture that grows downward.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    body: String,
}

impl Canvas {
    pub(super) fn rect(&mut self, rect: Rect, class: &str) {
        if rect.width > 0.0 && rect.height > 0.0 {
            let Rect { x, y, width, height } = rect;
            self.push(format_args!(
                r#"<rect class="{class}" x="{}" y="{}" width="{}" height="{}"/>"#,
                pixels(x),
                pixels(y),
                pixels(width),
                pixels(height)
            ));
        }
    }

    /// A rectangle with a text that appears under the pointer.
    pub(super) fn titled_rect(&mut self, rect: Rect, class: &str, title: &str) {
        self.push(format_args!("<g><title>{}</title>", escaped(title)));
        self.rect(rect, class);
        self.push(format_args!("</g>"));
    }

    pub(super) fn line(&mut self, from: [f64; 2], to: [f64; 2], class: &str) {
        self.push(format_args!(
            r#"<line class="{class}" x1="{}" y1="{}" x2="{}" y2="{}"/>"#,
            pixels(from[0]),
            pixels(from[1]),
            pixels(to[0]),
            pixels(to[1])
        ));
    }

    pub(super) fn text(&mut self, [x, y]: [f64; 2], anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::End => r#" text-anchor="end""#,
        };
        self.push(format_args!(
            r#"<text class="{class}" x="{}" y="{}"{anchor}>{}</text>"#,
            pixels(x),
            pixels(y),
            escaped(text)
        ));
    }

    /// A text that rises to the right and ends at its point.
    pub(super) fn rising_text(&mut self, [x, y]: [f64; 2], class: &str, text: &str) {
        let (x, y) = (pixels(x), pixels(y));
        let text = escaped(text);
        self.push(format_args!(
            r#"<text class="{class}" x="{x}" y="{y}" text-anchor="end" transform="rotate(-50 {x} {y})">{text}</text>"#
        ));
    }

    /// The finished picture.
    pub(super) fn finish(self, width: f64, height: f64, title: &str, style: &str) -> String {
        let (width, height, title) = (pixels(width), pixels(height), escaped(title));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\">\n<title>{title}</title>\n{style}\
             <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n{}</svg>\n",
            self.body
        )
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.body, "{element}").expect("invariant: writing to a string does not fail");
    }
}

/// A coordinate with at most two decimals.
fn pixels(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_the_markup() {
        let mut canvas = Canvas::default();
        canvas.text([1.0, 2.5], Anchor::End, "name", "<a> & \"b\"");
        let line =
            r#"<text class="name" x="1" y="2.5" text-anchor="end">&lt;a&gt; &amp; &quot;b&quot;</text>"#;
        assert_eq!(canvas.body.trim_end(), line);
    }

    #[test]
    fn thin_rectangles_grow_about_their_middle_and_empty_ones_vanish() {
        assert_eq!(Rect::new(0.0, 10.0, 5.0, 1.0).at_least(3.0), Rect::new(0.0, 9.0, 5.0, 3.0));
        let mut canvas = Canvas::default();
        canvas.rect(Rect::new(0.0, 0.0, 4.0, 4.0).clip(Rect::new(4.0, 0.0, 4.0, 4.0)), "now");
        assert_eq!(canvas.body, "");
    }
}
