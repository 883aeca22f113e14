//! A section of the report: text, tables and plots under a title.

use std::ffi::OsStr;

use crate::table::Table;

/// Text, tables and plots under a title.
pub struct Section {
    title: String,
    /// The parts of the section, in order.
    pub blocks: Vec<Block>,
}

/// A part of a section.
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A table under its caption.
    Table {
        /// The caption, which is unique in the report.
        caption: String,
        /// The table.
        table: Table,
    },
    /// The name of a plot.
    Plot(String),
}

impl Section {
    /// Returns an empty section.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            blocks: Vec::new(),
        }
    }

    /// Appends a paragraph.
    pub fn text(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Text(text.into()));
    }

    /// Appends a table. The caption is unique in the report.
    pub fn table(&mut self, caption: impl Into<String>, table: Table) {
        self.blocks.push(Block::Table {
            caption: caption.into(),
            table,
        });
    }

    /// Appends a plot of this name.
    pub fn plot(&mut self, name: impl Into<String>) {
        self.blocks.push(Block::Plot(name.into()));
    }

    /// Returns the section in Markdown, without plots if there is no folder of them.
    pub fn markdown(&self, plots: Option<&OsStr>) -> String {
        let mut text = format!("\n## {}\n", self.title);
        for block in &self.blocks {
            match (block, plots) {
                (Block::Text(paragraph), _) => text.push_str(&format!("\n{paragraph}\n")),
                (Block::Table { caption, table }, _) => {
                    text.push_str(&format!("\n{caption}:\n\n{}", table.markdown()));
                }
                (Block::Plot(name), Some(folder)) => {
                    let folder = folder.to_string_lossy();
                    text.push_str(&format!("\n![{name}]({folder}/{name}.svg)\n"));
                }
                (Block::Plot(_), None) => {}
            }
        }
        text
    }
}
