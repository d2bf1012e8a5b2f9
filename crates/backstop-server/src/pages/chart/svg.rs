//! Writing SVG and the little HTML around it: every text and every attribute is escaped on its way.

use crate::markup::escape_markup;
use std::fmt::{self, Write as _};

/// A drawing in the making.
pub(super) struct SvgWriter(String);

impl SvgWriter {
    /// Begins a drawing of this size: one picture, for who cannot see it.
    pub(super) fn new(
        id: &str,
        class: &str,
        size: (f64, f64),
        title: &str,
        description: &str,
    ) -> Self {
        Self::begin("img", id, class, size, title, description)
    }

    /// Begins a drawing with links in it. A picture's parts are not told of; those of a group are.
    pub(super) fn with_links(
        id: &str,
        class: &str,
        size: (f64, f64),
        title: &str,
        description: &str,
    ) -> Self {
        Self::begin("group", id, class, size, title, description)
    }

    fn begin(
        role: &str,
        id: &str,
        class: &str,
        size: (f64, f64),
        title: &str,
        description: &str,
    ) -> Self {
        let (id, class, (width, height)) = (escape_markup(id), escape_markup(class), size);
        Self(format!(
            "<svg class=\"chart {class}\" viewBox=\"0 0 {width} {height}\" role=\"{role}\" \
             aria-labelledby=\"{id}-title {id}-told\"><title id=\"{id}-title\">{}</title>\
             <desc id=\"{id}-told\">{}</desc>",
            escape_markup(title),
            escape_markup(description)
        ))
    }

    pub(super) fn path(&mut self, class: &str, d: &str) {
        self.push(format_args!(
            "<path class=\"{}\" d=\"{}\"/>",
            escape_markup(class),
            escape_markup(d)
        ));
    }

    /// A box; with words that appear where the pointer rests, if there are any.
    pub(super) fn rect(&mut self, class: &str, at: SvgRect, words: &str) {
        let SvgRect {
            x,
            y,
            width,
            height,
        } = at;
        let (width, height) = (width.max(0.0), height.max(0.0));
        let class = escape_markup(class);
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\""
        ));
        if words.is_empty() {
            self.push(format_args!("/>"));
        } else {
            self.push(format_args!(
                "><title>{}</title></rect>",
                escape_markup(words)
            ));
        }
    }

    pub(super) fn dot(&mut self, class: &str, (x, y): (f64, f64), radius: f64, words: &str) {
        let (class, words) = (escape_markup(class), escape_markup(words));
        self.push(format_args!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"><title>{words}</title></circle>"
        ));
    }

    pub(super) fn text(
        &mut self,
        class: &str,
        (x, y): (f64, f64),
        anchor: TextAnchor,
        words: &str,
    ) {
        let (class, words) = (escape_markup(class), escape_markup(words));
        let anchor = anchor.as_str();
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
        ));
    }

    /// Begins a link; what is drawn until [`SvgWriter::end_link`] leads there.
    pub(super) fn link(&mut self, address: &str, name: &str) {
        self.push(format_args!(
            "<a href=\"{}\" aria-label=\"{}\">",
            escape_markup(address),
            escape_markup(name)
        ));
    }

    pub(super) fn end_link(&mut self) {
        self.push(format_args!("</a>"));
    }

    pub(super) fn end(mut self) -> String {
        self.0.push_str("</svg>");
        self.0
    }

    fn push(&mut self, part: fmt::Arguments<'_>) {
        self.0.write_fmt(part).expect("a string takes everything");
    }
}

#[derive(Clone, Copy)]
pub(super) struct SvgRect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Which part of a text stands at its place.
#[derive(Clone, Copy)]
pub(super) enum TextAnchor {
    Start,
    Middle,
    End,
}

impl TextAnchor {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// A drawing with its caption, and its values as a table that opens.
pub(super) fn figure(id: &str, title: &str, legend: &str, drawing: &str, table: &str) -> String {
    let (id, title) = (escape_markup(id), escape_markup(title));
    format!(
        "<figure class=\"chart-box\"><figcaption><span class=\"chart-title\">{title}</span>{legend}</figcaption>\
         <div class=\"chart-scroll\">{drawing}</div><details class=\"chart-values\" id=\"{id}-values\"><summary>{title}: values as a table</summary>\
         {table}</details></figure>"
    )
}

/// A table of texts. The first cell of a row names it.
pub(super) fn table(titles: &[String], rows: &[Vec<String>]) -> String {
    let mut html =
        String::from("<table><caption class=\"away\">The values of the chart</caption><thead><tr>");
    for title in titles {
        write!(html, "<th scope=\"col\">{}</th>", escape_markup(title))
            .expect("a string takes everything");
    }
    html.push_str("</tr></thead><tbody>");
    for row in rows {
        html.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            let cell = escape_markup(cell);
            let cell = if at == 0 {
                format!("<th scope=\"row\">{cell}</th>")
            } else {
                format!("<td>{cell}</td>")
            };
            html.push_str(&cell);
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table>");
    html
}
