//! The report as sections, and as Markdown or a data file.

use std::ffi::OsStr;

use anyhow::Result;
use serde::Serialize;

use super::{
    ablation,
    figure::{self, Figure, FigureData},
    figures,
    host::Host,
    measure::Results,
    section::{Block, Section},
    server::{Reuse, peer_command},
};
use crate::{
    contest::{self, Contestant, Summary},
    table::TableData,
};

/// The title of the report and of its data file.
const TITLE: &str = "All figures";

/// The heading above the figures.
pub struct Heading {
    /// The date of the report, and the host.
    pub host: Host,
    /// The commit of the checkout in which the report was made.
    pub commit: Option<String>,
    /// The command that made the report.
    pub command: String,
    /// The node's version.
    pub faasw: Option<String>,
    /// The peer's version.
    pub wasmtime: Option<String>,
    /// Whether rounds were few and short.
    pub quick: bool,
}

/// The complete report.
pub struct Document {
    heading: Heading,
    figures: Vec<Figure>,
    sections: Vec<Section>,
}

/// A data file under `bench/results`.
#[derive(Serialize)]
struct Data<'a> {
    title: &'a str,
    date: &'a str,
    machine: String,
    kernel: &'a str,
    commit: Option<&'a str>,
    command: &'a str,
    notes: Vec<String>,
    figures: Vec<FigureData>,
    tables: Vec<TableData<'a>>,
}

impl Document {
    /// Returns the report of all results.
    pub fn new(results: &Results, heading: Heading) -> Self {
        Self {
            heading,
            figures: figures::of(results),
            sections: sections(results),
        }
    }

    /// Returns the report in Markdown. Its links expect the plots in the folder `plots` beside it.
    pub fn markdown(&self, plots: Option<&OsStr>) -> String {
        let mut text = self.heading.markdown();
        text.push_str("\n## Figures and goals\n\n");
        text.push_str(&figure::table(&self.figures).markdown());
        for section in &self.sections {
            text.push_str(&section.markdown(plots));
        }
        text
    }

    /// Returns the report as a data file.
    ///
    /// # Errors
    /// Returns an error if the report cannot be written as JSON.
    pub fn json(&self) -> Result<String> {
        let blocks = || self.sections.iter().flat_map(|section| &section.blocks);
        let texts = blocks().filter_map(|block| match block {
            Block::Text(text) => Some(text.clone()),
            _ => None,
        });
        let tables = blocks().filter_map(|block| match block {
            Block::Table { caption, table } => Some(table.data(caption)),
            _ => None,
        });
        let heading = &self.heading;
        let data = Data {
            title: TITLE,
            date: &heading.host.date,
            machine: heading.host.machine(),
            kernel: &heading.host.kernel,
            commit: heading.commit.as_deref(),
            command: &heading.command,
            notes: heading.notes().into_iter().chain(texts).collect(),
            figures: self.figures.iter().map(Figure::data).collect(),
            tables: tables.collect(),
        };
        Ok(serde_json::to_string_pretty(&data)? + "\n")
    }
}

/// Returns everything below the table of figures.
fn sections(results: &Results) -> Vec<Section> {
    let mut sections = Vec::new();
    if !results.notes.is_empty() || !results.failures.is_empty() {
        let mut section = Section::new("Notes");
        for note in &results.notes {
            section.text(note);
        }
        for (name, error) in &results.failures {
            let error = error.replace('\n', "; ");
            section.text(format!("Not measured: {name}: {error}"));
        }
        sections.push(section);
    }
    for (function, contests) in &results.contests {
        let title = function.title();
        let mut section = Section::new(format!("{title} against its peers"));
        for kind in ["latency", "throughput", "cpu"] {
            section.plot(format!("{kind}-{}", function.name));
        }
        for contest in contests {
            let summaries: Vec<Summary> = contest.all().filter_map(Contestant::summary).collect();
            section.table(
                format!("{title}, {}", contest.title()),
                contest::table(&summaries),
            );
        }
        sections.push(section);
    }
    if let Some(found) = &results.floor {
        let mut section = Section::new("A request in a microVM");
        section.plot("floor");
        section.table("The floor", found.floor_table());
        section.text(
            "Stages are those of `Server-Timing`. Requests *at once* arrive together and compete.",
        );
        section.table("Stages of requests", found.ways_table());
        sections.push(section);
    }
    if let Some(found) = &results.sandboxes {
        let mut section = Section::new("Getting a sandbox");
        section.plot("sandboxes");
        section.text(format!(
            "The time from the request for a sandbox until one is jailed and ready for a seed \
             (AFaaS fig. 8 and 15). A pool with zygotes keeps {} ready, which are specialised; a \
             request that finds none has one made.",
            found.kept_ready
        ));
        section.table("Getting a sandbox", found.table());
        section.text(
            "The parts of making a sandbox are those that spawner and sandbox report. Zygotes are \
             made in the background. The rest of the time is messages, and waiting for the spawner \
             and for processors.",
        );
        section.table("Parts of making a sandbox", found.parts_table());
        sections.push(section);
    }
    if !results.ablation.is_empty() {
        sections.push(ablation::section(&results.ablation));
    }
    if !results.memory.is_empty() {
        let mut section = Section::new("Memory of warm instances");
        for (function, found) in &results.memory {
            section.table(format!("Memory of {}", function.title()), found.table());
        }
        sections.push(section);
    }
    if let Some(found) = &results.soak {
        let mut section = Section::new("Load for a long time");
        section.plot("soak");
        section.table("Load for a long time", found.table());
        sections.push(section);
    }
    if let Some(found) = &results.overload {
        let mut section = Section::new("Overload");
        section.plot("overload");
        section.text(format!(
            "Requests arrive at fixed times, whatever happened to earlier ones, at a function that \
             computes for some milliseconds. A load of 1 is the {:.0} answers/s that the function \
             gives to connections that wait. Latency counts from when a request was due.",
            found.capacity
        ));
        section.table("Overload", found.table());
        sections.push(section);
    }
    sections
}

impl Heading {
    /// Returns what a data file has no field for.
    fn notes(&self) -> Vec<String> {
        let version = |version: &Option<String>| version.clone().unwrap_or("unknown".to_owned());
        let mut notes = vec![
            format!("Node: {}.", version(&self.faasw)),
            format!("Peer: {}.", version(&self.wasmtime)),
            format!("Fresh peer: `{}`.", peer_command(Reuse::Fresh)),
            format!("Warm peer: `{}`.", peer_command(Reuse::Warm)),
        ];
        if self.quick {
            notes.push(
                "**Made with `--quick`: this shows that everything works, not how fast it is.**"
                    .to_owned(),
            );
        }
        notes
    }

    fn markdown(&self) -> String {
        let host = &self.host;
        let mut text = format!(
            "# {TITLE}\n\n\
             `bench/README.md` says how each number is measured. Ratios are medians over rounds of \
             one run,\nand the interval holds the median with 95 % confidence. Machines like this \
             are noisy: trust the\nratios.\n\n"
        );
        for line in [
            format!("Date: {}.", host.date),
            format!("Machine: {}.", host.machine()),
            format!("Kernel: {}.", host.kernel),
            format!("Commit: {}.", self.commit.as_deref().unwrap_or("unknown")),
            format!("Command: `{}`.", self.command),
        ]
        .iter()
        .chain(&self.notes())
        {
            text.push_str(&format!("- {line}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;

    fn document(quick: bool) -> Document {
        let results = Results {
            notes: vec!["js: no warm peer".to_owned()],
            failures: vec![("soak".to_owned(), "no\nnode".to_owned())],
            ..Results::default()
        };
        let heading = Heading {
            host: Host::here(),
            commit: Some("abc1234".to_owned()),
            command: "faasw-bench report --quick".to_owned(),
            faasw: None,
            wasmtime: Some("wasmtime 48".to_owned()),
            quick,
        };
        Document::new(&results, heading)
    }

    #[test]
    fn a_report_says_what_could_not_be_measured_and_that_it_was_quick() {
        let text = document(true).markdown(None);
        assert!(text.contains("Not measured: soak: no; node\n"), "{text}");
        assert!(text.contains("\njs: no warm peer\n") && text.contains("- Node: unknown.\n"));
        assert!(text.contains("not how fast it is") && !text.contains(".svg"));
    }

    #[test]
    fn a_data_file_has_the_heading_the_text_and_the_tables() {
        let mut document = document(false);
        let mut section = Section::new("Overload");
        let mut table = Table::new(["load", "answered"]);
        table.row(["0.5".to_owned(), "257".to_owned()]);
        section.plot("overload");
        section.table("Overload", table);
        document.sections.push(section);
        let data: serde_json::Value = serde_json::from_str(&document.json().unwrap()).unwrap();
        assert_eq!(data["commit"], "abc1234");
        assert_eq!(data["command"], "faasw-bench report --quick");
        assert_eq!(data["date"], document.heading.host.date.as_str());
        let notes = data["notes"].as_array().unwrap();
        assert_eq!(notes.last().unwrap(), "Not measured: soak: no; node");
        assert_eq!(
            data["tables"],
            serde_json::json!([{
                "caption": "Overload",
                "columns": ["load", "answered"],
                "rows": [["0.5", "257"]],
            }])
        );
        let text = document.markdown(Some(OsStr::new("plots")));
        assert!(
            text.contains("\n![overload](plots/overload.svg)\n"),
            "{text}"
        );
    }
}
