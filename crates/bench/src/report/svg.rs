//! A drawing as SVG: lines, boxes, text. Nothing more is needed.

use std::fmt::Write as _;

/// A drawing.
pub struct Svg {
    body: String,
    width: f64,
    height: f64,
}

/// Where text stands to its point.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// It begins there.
    Start,
    /// It ends there.
    End,
    /// Around it.
    Middle,
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

impl Svg {
    /// An empty one.
    #[must_use]
    pub fn new(width: f64, height: f64) -> Svg {
        Svg {
            body: String::new(),
            width,
            height,
        }
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing into a String does not fail.
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }

    /// A line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, dashed: bool) {
        let dashes = if dashed {
            " stroke-dasharray=\"5 4\""
        } else {
            ""
        };
        self.push(format_args!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"{dashes}/>",
            from.0, from.1, to.0, to.1
        ));
    }

    /// A filled box.
    pub fn rect(&mut self, at: (f64, f64), size: (f64, f64), colour: &str) {
        self.push(format_args!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
            at.0, at.1, size.0, size.1
        ));
    }

    /// Text.
    pub fn text(&mut self, at: (f64, f64), anchor: Anchor, size: u32, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::End => "end",
            Anchor::Middle => "middle",
        };
        self.push(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{}</text>",
            at.0,
            at.1,
            escaped(text)
        ));
    }

    /// Points joined by lines.
    pub fn curve(&mut self, points: impl Iterator<Item = (f64, f64)>, colour: &str) {
        let mut list = String::new();
        for (x, y) in points {
            let _ = write!(list, "{x:.1},{y:.1} ");
        }
        self.push(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
            list.trim_end()
        ));
    }

    /// The file.
    #[must_use]
    pub fn finish(self) -> String {
        let Svg {
            body,
            width,
            height,
        } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
        )
    }
}
