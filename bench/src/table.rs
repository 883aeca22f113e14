//! Tables as text: the first column is flush left, the others are flush right.

use std::fmt;

use anyhow::Result;
use serde::Serialize;

/// Rows of cells under a row of titles.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table with these titles and no rows.
    pub fn new<const N: usize>(titles: [&str; N]) -> Self {
        Self {
            rows: vec![titles.map(str::to_owned).to_vec()],
        }
    }

    /// Appends a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    /// Returns the table in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
            text.push_str(&format!("| {} |\n", cells.join(" | ")));
            if index == 0 {
                let rule = |column| if column == 0 { " --- |" } else { " ---: |" };
                let rules: String = (0..row.len()).map(rule).collect();
                text.push_str(&format!("|{rules}\n"));
            }
        }
        text
    }

    /// Returns the table as part of a data file.
    pub fn data<'a>(&'a self, caption: &'a str) -> TableData<'a> {
        let (columns, rows) = match self.rows.split_first() {
            Some((columns, rows)) => (columns.as_slice(), rows),
            None => Default::default(),
        };
        TableData {
            caption,
            columns,
            rows,
        }
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}

/// A table in a data file under `bench/results`.
#[derive(Serialize)]
pub struct TableData<'a> {
    caption: &'a str,
    columns: &'a [String],
    rows: &'a [Vec<String>],
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = self.width(column);
                line.push_str(&if column == 0 {
                    format!("{cell:<width$}")
                } else {
                    format!("  {cell:>width$}")
                });
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Prints a result: as JSON, or as `text`.
///
/// # Errors
/// Returns an error if the result cannot be written as JSON.
pub fn print(json: bool, found: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(found)?)
    } else {
        print!("{}", text())
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["kernel", "µs"]);
        table.row(["f".to_owned(), "12.5".to_owned()]);
        assert_eq!(table.to_string(), "kernel    µs\nf       12.5\n");
    }

    #[test]
    fn markdown_has_a_rule_below_the_titles() {
        let mut table = Table::new(["a|b", "c"]);
        table.row(["d".to_owned(), "1".to_owned()]);
        assert_eq!(
            table.markdown(),
            "| a\\|b | c |\n| --- | ---: |\n| d | 1 |\n"
        );
    }
}
