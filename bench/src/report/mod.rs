//! `faasw-bench report`: every figure for which the node has a goal, in one run.
//!
//! The report starts the node and its peer itself, anew for each function and purpose. It uses free
//! ports and temporary folders, and ends only processes that it started. If a part fails, the
//! others are still measured; the report names the failed part, and the command fails in the end.
//!
//! - `function`: the measured functions, and the goals.
//! - `server`: the processes, with a `setting` of the node's. `measure`: the parts, each of which
//!   uses another of this program's benchmarks. `ablation`: the effect of each mechanism.
//! - `figure`, `figures`: numbers beside their goals. `plot`, `curve`, `charts`: plots. `document`:
//!   the report as Markdown and as a data file, with its `section`s and the `host` on which it was
//!   made.

mod ablation;
mod charts;
mod curve;
mod document;
mod figure;
mod figures;
pub mod function;
mod host;
mod measure;
mod plot;
mod section;
pub mod server;
pub mod setting;

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, ensure};

use crate::interrupt;
use measure::{Part, Plan, Results};
use setting::DisabledMechanism;

pub use function::Function;
pub use server::Node;
pub use setting::Setting;

/// Functions that are measured unless the command line names others with the same names. Paths are
/// relative to a checkout.
const FUNCTIONS: [&str; 2] = [
    "hello=examples/hello/hello.wasm",
    "go=examples/go-http/go-http.wasm",
];

/// Options of the `report` benchmark.
#[derive(clap::Args)]
pub struct Arguments {
    /// The `faasw` program, built with --release
    #[arg(long, value_name = "FILE")]
    faasw: PathBuf,
    /// The `faasw` program built with --features ablation, for the part ablation alone:
    /// without it only what options switch off is measured there
    #[arg(long, value_name = "FILE")]
    ablation_faasw: Option<PathBuf>,
    /// The `wasmtime` program, of the release that the node carries
    #[arg(long, value_name = "FILE")]
    wasmtime: PathBuf,
    /// A component, and its freeze policy if not the node's choice; hello and go
    /// are those of examples/ unless given, js and python have goals, too
    #[arg(long, value_name = "NAME=FILE[:FREEZE]")]
    function: Vec<Function>,
    /// Only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    /// Few and short rounds: whether everything works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// A further option of `faasw up`, such as --node-option=--zygotes=8
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    node_option: Vec<String>,
    /// A node with something switched off, by options of `faasw up` or environment
    /// variables: it is measured beside the whole node, in the parts ablation and floor
    #[arg(long, value_name = "NAME: WORDS")]
    without: Vec<DisabledMechanism>,
    /// Write the report to this file, and its plots to the folder of that name beside it
    #[arg(long, value_name = "FILE.md")]
    write: Option<PathBuf>,
    /// Write the figures and tables to this file, from which bench/scripts/performance.py makes
    /// docs/performance.md
    #[arg(long, value_name = "FILE.json")]
    data: Option<PathBuf>,
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> Result<()> {
    interrupt::catch();
    let plan = if arguments.quick {
        Plan::QUICK
    } else {
        Plan::WHOLE
    };
    let results = measure::all(&measure::Subjects {
        faasw: &arguments.faasw,
        ablation_faasw: arguments.ablation_faasw.as_deref(),
        wasmtime: &arguments.wasmtime,
        functions: &functions(&arguments.function)?,
        parts: &parts(&arguments.only),
        setting: &Setting::of_options(&arguments.node_option),
        without: &arguments.without,
        plan,
    })?;
    let folder = match &arguments.write {
        Some(file) => Some(file.file_stem().context("--write needs a file name")?),
        None => None,
    };
    let document = document::Document::new(&results, arguments.heading());
    let text = document.markdown(folder);
    print!("{text}");
    if let Some(file) = &arguments.write {
        write(file, &text, &results)?;
    }
    if let Some(file) = &arguments.data {
        fs::write(file, document.json()?).with_context(|| file.display().to_string())?;
    }
    let failed = results.failures.len();
    ensure!(failed == 0, "{failed} parts could not be measured");
    Ok(())
}

impl Arguments {
    fn heading(&self) -> document::Heading {
        document::Heading {
            host: host::Host::here(),
            commit: host::commit(),
            command: host::command(std::env::args()),
            faasw: host::version(&self.faasw),
            wasmtime: host::version(&self.wasmtime),
            quick: self.quick,
        }
    }
}

/// Returns the functions of the command line, and the default ones that none of them replaces.
fn functions(given: &[Function]) -> Result<Vec<Function>> {
    let mut functions = Vec::new();
    for text in FUNCTIONS {
        let function: Function = text.parse().map_err(anyhow::Error::msg)?;
        if !given.iter().any(|other| other.name == function.name) {
            functions.push(function);
        }
    }
    functions.extend_from_slice(given);
    for function in &functions {
        let file = function.file.display();
        ensure!(
            function.file.is_file(),
            "{}: there is no file {file}; run this in a checkout, or use --function {}=FILE",
            function.name,
            function.name
        );
    }
    Ok(functions)
}

fn parts(only: &[Part]) -> Vec<Part> {
    if only.is_empty() {
        Part::ALL.to_vec()
    } else {
        only.to_vec()
    }
}

/// Writes the report, and replaces the plots of the last one.
fn write(file: &PathBuf, text: &str, results: &Results) -> Result<()> {
    let plots = file.with_extension("");
    fs::create_dir_all(&plots).with_context(|| plots.display().to_string())?;
    for entry in fs::read_dir(&plots)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "svg") {
            fs::remove_file(path)?;
        }
    }
    for (name, chart) in charts::of(results) {
        fs::write(plots.join(name), chart)?;
    }
    fs::write(file, text).with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_function_is_an_error_with_a_hint() {
        let given: Function = "js=/nowhere/js.wasm".parse().unwrap();
        let error = functions(&[given]).unwrap_err().to_string();
        assert!(error.contains("--function"), "{error}");
    }

    #[test]
    fn all_parts_are_measured_unless_some_are_chosen() {
        assert_eq!(parts(&[]).len(), Part::ALL.len());
        assert_eq!(parts(&[Part::Soak]), [Part::Soak]);
    }
}
