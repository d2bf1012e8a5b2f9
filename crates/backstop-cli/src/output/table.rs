//! Tables: drawn on terminals, tab-separated for programs, Markdown where a page shows the same.

use super::words::one_line;
use comfy_table::{
    Attribute, Cell, Color, ColumnConstraint, ContentArrangement, LineStyle, Table as Drawn,
    TableStyle,
};

/// What a cell's content means; colour on a terminal, nothing elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CellTone {
    Plain,
    Good,
    Warning,
    Bad,
}

/// A line under the header and no other: rows of a terminal are read, not counted.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

#[derive(Clone, Debug)]
pub(crate) struct TextTable {
    header: Vec<String>,
    rows: Vec<Vec<(String, CellTone)>>,
}

impl TextTable {
    pub(crate) fn new(header: &[&str]) -> Self {
        Self {
            header: header.iter().map(|title| (*title).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.styled_row(cells.into_iter().map(|text| (text, CellTone::Plain)));
    }

    /// Adds a row whose cells have a meaning.
    pub(crate) fn styled_row(&mut self, cells: impl IntoIterator<Item = (String, CellTone)>) {
        self.rows.push(
            cells
                .into_iter()
                .map(|(text, tone)| (one_line(&text), tone))
                .collect(),
        );
    }

    pub(crate) fn render(&self, is_terminal: bool) -> String {
        if is_terminal {
            self.render_terminal()
        } else {
            self.tab_separated()
        }
    }

    fn render_terminal(&self) -> String {
        let mut drawn = Drawn::new();
        drawn
            .load_style(STYLE)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_header(
                self.header
                    .iter()
                    .map(|title| Cell::new(title).add_attribute(Attribute::Bold)),
            );
        for row in &self.rows {
            drawn.add_row(row.iter().map(|(text, tone)| match tone {
                CellTone::Plain => Cell::new(text),
                CellTone::Good => Cell::new(text).fg(Color::Green),
                CellTone::Warning => Cell::new(text).fg(Color::Yellow),
                CellTone::Bad => Cell::new(text).fg(Color::Red),
            }));
        }
        // The first column is what people copy: it is never broken over lines.
        if let Some(first) = drawn.column_mut(0) {
            first.set_constraint(ColumnConstraint::ContentWidth);
        }
        drawn.trim_fmt()
    }

    fn tab_separated(&self) -> String {
        let mut lines = vec![self.header.join("\t")];
        for row in &self.rows {
            lines.push(
                row.iter()
                    .map(|(text, _)| text.as_str())
                    .collect::<Vec<_>>()
                    .join("\t"),
            );
        }
        lines.join("\n")
    }

    /// As Markdown, with columns of equal width.
    pub(crate) fn markdown(&self) -> String {
        let width = |column: usize| {
            let cells = self
                .rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|(text, _)| text.chars().count());
            cells
                .chain([self.header[column].chars().count()])
                .max()
                .unwrap_or_default()
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let line = |cells: Vec<&str>| {
            let padded = cells
                .iter()
                .zip(&widths)
                .map(|(text, width)| format!("{text:<width$}"));
            format!("| {} |", padded.collect::<Vec<_>>().join(" | "))
        };
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        let mut lines = vec![
            line(self.header.iter().map(String::as_str).collect()),
            line(rule.iter().map(String::as_str).collect()),
        ];
        for row in &self.rows {
            lines.push(line(row.iter().map(|(text, _)| text.as_str()).collect()));
        }
        lines.join("\n")
    }
}

/// How many characters fit on a line of the terminal; `None` if stdout is none.
pub(crate) fn terminal_width() -> Option<usize> {
    Drawn::new().width().map(usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TextTable {
        let mut table = TextTable::new(&["A", "Long"]);
        table.row(["1\t\n".to_owned(), "é".to_owned()]);
        table.styled_row([
            ("22".to_owned(), CellTone::Bad),
            ("x".to_owned(), CellTone::Plain),
        ]);
        table
    }

    #[test]
    fn for_programs_a_line_is_a_row() {
        assert_eq!(table().render(false), "A\tLong\n1\\t\\n\té\n22\tx");
    }

    #[test]
    fn markdown_lines_up() {
        let expected = "| A     | Long |\n| ----- | ---- |\n| 1\\t\\n | é    |\n| 22    | x    |";
        assert_eq!(table().markdown(), expected);
    }
}
