//! `faasw-bench compute`: kernels in a function against the same module run natively.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::{
    client::{Client, Url},
    kernel::{Answer, KERNELS, Kernel, Work},
    native::Native,
    stats::{self, Ratio},
    table::{self, Table},
};

/// Options of the `compute` benchmark.
#[derive(clap::Args)]
pub struct Arguments {
    /// Address of the function, which is tests/fixtures/compute/compute-cgi.wasm deployed on a node
    #[arg(long, value_name = "URL")]
    function: Url,
    /// File of the same module, which is run natively
    #[arg(
        long,
        value_name = "FILE",
        default_value = "tests/fixtures/compute/compute-cgi.wasm"
    )]
    module: PathBuf,
    /// Pairs of runs for each kernel
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only this kernel (repeatable)
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A kernel and its measurements.
#[derive(Serialize)]
struct Row {
    kernel: &'static str,
    what: &'static str,
    amount: u64,
    /// Whether the kernel measures paging rather than computing.
    paging: bool,
    guest_median_microseconds: f64,
    native_median_microseconds: f64,
    /// Ratio of guest to native, pair by pair.
    ratio: Ratio,
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> Result<()> {
    for name in &arguments.kernel {
        let known = KERNELS.iter().any(|kernel| kernel.name == name);
        ensure!(known, "no such kernel: {name}");
    }
    let module = fs::read(&arguments.module)
        .with_context(|| format!("cannot read {}", arguments.module.display()))?;
    let native = Native::compile(&module)?;
    let mut guest = Guest::new(&arguments.function);
    let mut rows = Vec::new();
    for kernel in KERNELS {
        if arguments.kernel.is_empty() || arguments.kernel.iter().any(|name| name == kernel.name) {
            if !arguments.json {
                eprintln!("{}: {} pairs of runs", kernel.name, arguments.rounds);
            }
            rows.push(measure(&kernel, &native, &mut guest, arguments.rounds)?);
        }
    }
    table::print(arguments.json, &rows, || tables(&rows))
}

fn measure(kernel: &Kernel, native: &Native, guest: &mut Guest, rounds: u32) -> Result<Row> {
    // The first pair warms both sides up, and shows that both do the same work.
    let expected = native.run(kernel)?.result;
    let found = guest.run(kernel)?.result;
    ensure!(
        expected == found,
        "{} gives {found} in the function and {expected} natively: not the same module",
        kernel.name
    );
    let mut in_guest = Vec::new();
    let mut natively = Vec::new();
    for round in 0..rounds {
        // Both orders in turn, so that neither side always runs on warm caches.
        if round % 2 == 0 {
            in_guest.push(guest.run(kernel)?.took);
            natively.push(native.run(kernel)?.took);
        } else {
            natively.push(native.run(kernel)?.took);
            in_guest.push(guest.run(kernel)?.took);
        }
    }
    let pairs: Vec<(f64, f64)> = in_guest
        .iter()
        .zip(&natively)
        .map(|(guest, native)| (stats::microseconds(*guest), stats::microseconds(*native)))
        .collect();
    let nothing = "nothing was measured";
    Ok(Row {
        kernel: kernel.name,
        what: kernel.what,
        amount: kernel.amount,
        paging: kernel.work == Work::Paging,
        guest_median_microseconds: stats::median(&in_guest).context(nothing)?,
        native_median_microseconds: stats::median(&natively).context(nothing)?,
        ratio: Ratio::of(&pairs).context(nothing)?,
    })
}

/// The function on its node.
struct Guest {
    client: Client,
    path: String,
}

impl Guest {
    fn new(url: &Url) -> Self {
        Self {
            client: Client::new(url),
            path: url.path.trim_end_matches('/').to_owned(),
        }
    }

    fn run(&mut self, kernel: &Kernel) -> Result<Answer> {
        let path = format!("{}/{}?{}", self.path, kernel.name, kernel.query());
        let body = self.client.get(&path)?.body;
        Answer::parse(&String::from_utf8_lossy(&body))
    }
}

fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    for (title, paging) in [("computing", false), ("paging", true)] {
        let of_title: Vec<&Row> = rows.iter().filter(|row| row.paging == paging).collect();
        if of_title.is_empty() {
            continue;
        }
        let titles = [
            title,
            "",
            "guest us",
            "native us",
            "guest/native",
            "95 % interval",
        ];
        let mut table = Table::new(titles);
        for row in of_title {
            table.row([
                row.kernel.to_owned(),
                row.what.to_owned(),
                format!("{:.1}", row.guest_median_microseconds),
                format!("{:.1}", row.native_median_microseconds),
                format!("{:.3}", row.ratio.median),
                format!("{:.3} to {:.3}", row.ratio.low, row.ratio.high),
            ]);
        }
        text.push_str(&format!("{table}\n"));
    }
    text
}
