//! `faasw-bench overload`: goodput under more load than a node can serve.

use std::{fmt, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::{
    client::{Connections, Url},
    load::{Generator, Until},
    open_loop,
    stats::Percentiles,
    table::{self, Table},
};

/// Connections that are kept busy to measure the capacity of the machine.
const CONNECTIONS: usize = 64;
/// Load before that, which is not counted.
const WARM_UP: Duration = Duration::from_secs(3);
/// How long a load is offered before it is measured, so that its queues fill.
const FILLING: Duration = Duration::from_secs(2);
/// Rest between two loads, so that they do not influence each other.
const REST: Duration = Duration::from_secs(2);
/// Loads that are offered, as multiples of the capacity.
pub const LOADS: [f64; 8] = [0.5, 0.75, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0];

/// Options of the `overload` benchmark.
#[derive(clap::Args)]
pub struct Arguments {
    /// Address of a function; one that computes for a few milliseconds, so that asking
    /// costs little beside answering
    #[arg(long, value_name = "URL")]
    function: Url,
    /// How long each load is offered
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The results of one offered load.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The load, as a multiple of the capacity.
    pub load: f64,
    /// Requests offered per second.
    pub offered: f64,
    /// Answers of success per second.
    pub goodput: f64,
    /// Latency of the successful answers, from when each request was due, in microseconds.
    pub accepted: Option<Percentiles>,
    /// Requests refused per second with 503 and Retry-After.
    pub refused: f64,
    /// Latency of the refusals in microseconds.
    pub refusal: Option<Percentiles>,
    /// Requests that were neither answered with success nor refused.
    pub errors: u64,
    /// The first error.
    pub first_error: Option<String>,
    /// The longest delay of the generator in sending a request, in microseconds.
    pub late: f64,
}

/// The results of all loads.
#[derive(Clone, Debug, Serialize)]
pub struct OverloadReport {
    /// Answers per second on connections that each wait for their answer.
    pub capacity: f64,
    /// The loads, in the order in which they were offered.
    pub steps: Vec<Step>,
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> Result<()> {
    let window = Duration::from_secs(arguments.seconds.into());
    let found = measure(&arguments.function, window, &LOADS, !arguments.json)?;
    table::print(arguments.json, &found, || found.to_string())?;
    ensure!(
        found.errors() == 0,
        "{} requests were neither answered nor refused; the first: {}",
        found.errors(),
        found.first_error().unwrap_or("unknown")
    );
    Ok(())
}

/// Offers a function loads, each for `window`. With `tell`, prints progress on standard error.
///
/// # Errors
/// Returns an error if the node cannot be reached or answers nothing, and after an interrupt.
pub fn measure(
    function: &Url,
    window: Duration,
    loads: &[f64],
    tell: bool,
) -> Result<OverloadReport> {
    let mut generator = Generator::new(function, Connections::Keep, CONNECTIONS);
    generator.run(Until::Elapsed(WARM_UP.min(window)))?;
    let outcome = generator.run(Until::Elapsed(window))?;
    drop(generator);
    let answers = outcome.latencies.len() as f64;
    ensure!(
        answers > 0.0,
        "nothing was answered: {}",
        outcome.first_error.unwrap_or_default()
    );
    let capacity = answers / outcome.elapsed.as_secs_f64();
    let mut found = OverloadReport {
        capacity,
        steps: Vec::new(),
    };
    for load in loads {
        thread::sleep(REST.min(window));
        let step = Step::measure(function, *load, capacity, window)?;
        if tell {
            eprintln!(
                "{load} of {capacity:.0}/s: {:.0}/s answered, {:.0}/s refused",
                step.goodput, step.refused
            );
        }
        found.steps.push(step);
    }
    Ok(found)
}

impl Step {
    fn measure(function: &Url, load: f64, capacity: f64, window: Duration) -> Result<Self> {
        let outcome = open_loop::run(function, load * capacity, FILLING.min(window), window)?;
        let seconds = window.as_secs_f64();
        Ok(Self {
            load,
            offered: outcome.offered as f64 / seconds,
            goodput: outcome.served as f64 / seconds,
            accepted: Percentiles::of(&outcome.accepted),
            refused: outcome.refused.len() as f64 / seconds,
            refusal: Percentiles::of(&outcome.refused),
            errors: outcome.errors,
            first_error: outcome.first_error,
            late: crate::stats::microseconds(outcome.late),
        })
    }
}

impl OverloadReport {
    /// Returns the number of requests that were neither answered with success nor refused.
    pub fn errors(&self) -> u64 {
        self.steps.iter().map(|step| step.errors).sum()
    }

    fn first_error(&self) -> Option<&str> {
        let mut errors = self
            .steps
            .iter()
            .filter_map(|step| step.first_error.as_deref());
        errors.next()
    }

    /// Returns the highest goodput of all loads.
    pub fn peak(&self) -> f64 {
        let served = self.steps.iter().map(|step| step.goodput);
        served.fold(0.0, f64::max)
    }

    /// Returns the last load, which is the largest.
    pub fn largest(&self) -> Option<&Step> {
        self.steps.last()
    }

    /// Returns the goodput of the largest load, as a part of the peak.
    ///
    /// # Errors
    /// Returns an error if no load was offered.
    pub fn throughput_share(&self) -> Result<f64> {
        let largest = self.largest().context("no load was offered")?;
        Ok(largest.goodput / self.peak())
    }

    /// Returns the loads as a table.
    pub fn table(&self) -> Table {
        let titles = [
            "load",
            "offered/s",
            "answered/s",
            "p50 ms",
            "p99 ms",
            "refused/s",
            "p99 ms",
            "errors",
            "late ms",
        ];
        let mut table = Table::new(titles);
        let ms = |time: Option<f64>| time.map_or("–".to_owned(), |us| format!("{:.1}", us / 1e3));
        for step in &self.steps {
            table.row([
                format!("{:.2}", step.load),
                format!("{:.0}", step.offered),
                format!("{:.0}", step.goodput),
                ms(step.accepted.map(|times| times.p50)),
                ms(step.accepted.map(|times| times.p99)),
                format!("{:.0}", step.refused),
                ms(step.refusal.map(|times| times.p99)),
                step.errors.to_string(),
                ms(Some(step.late)),
            ]);
        }
        table
    }
}

impl fmt::Display for OverloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{CONNECTIONS} connections that wait: {:.0} answers/s",
            self.capacity
        )?;
        writeln!(f, "{}", self.table())?;
        match self.throughput_share() {
            Ok(kept) => writeln!(f, "largest load to the peak: {kept:.3}"),
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::server;

    #[test]
    fn each_load_reports_offered_and_served_requests() {
        const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine";
        let url = server(vec![vec![FINE; 10_000]; 200]);
        let window = Duration::from_millis(40);
        let found = measure(&url, window, &[0.01, 0.02], false).unwrap();
        assert_eq!((found.steps.len(), found.errors()), (2, 0));
        for step in &found.steps {
            assert!(step.offered > 0.0 && step.accepted.is_some(), "{step:?}");
        }
        assert!(found.peak() > 0.0 && found.throughput_share().unwrap() <= 1.0);
        assert!(found.to_string().contains("answered/s"));
    }
}
