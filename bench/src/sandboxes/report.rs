//! The results of the rounds.

use std::{fmt, time::Duration};

use faasw_pool::measuring::SandboxCreationTimes;
use serde::Serialize;

use super::{Batch, Plan, ReceivedSandbox, Source};
use crate::{
    stats::{self, Percentiles, Ratio},
    table::Table,
};

/// Times to get a sandbox, by source and by number of tasks that request one at once.
#[derive(Debug, Serialize)]
pub struct SandboxesReport {
    /// Sandboxes that the pool that makes them ahead keeps ready.
    pub kept_ready: usize,
    /// Rows by number of tasks, then by source.
    pub rows: Vec<Row>,
}

/// Sandboxes of one source and one number of tasks.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the source.
    pub source: &'static str,
    /// Number of tasks that requested sandboxes at once.
    pub at_once: u32,
    /// Time from the request until the sandbox was there, in microseconds.
    pub after: Percentiles,
    /// Ratio of the median of sandboxes that were made on demand in new groups to the median of
    /// these, in the same round; `None` for the former themselves.
    pub new_to_these: Option<Ratio>,
    /// Sandboxes that were ready when they were requested.
    pub were_ready: usize,
    /// The part of the jails' control groups that had been kept; `None` if the host has no groups.
    pub groups_kept: Option<f64>,
    /// Medians of the parts of making the sandboxes, even if they were made ahead.
    pub parts: PartMedians,
}

/// Medians of the parts of making a sandbox, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PartMedians {
    /// Finding or making its control group.
    pub group: f64,
    /// The fork into its namespaces, on the spawner's side.
    pub fork: f64,
    /// From the fork until it ran in its group.
    pub enter: f64,
    /// Making its VM.
    pub vm: f64,
    /// Closing its jail.
    pub jail: f64,
    /// Presetting it; 0 if that was not done.
    pub preset: f64,
}

impl SandboxesReport {
    /// Summarises `rounds`; `None` if nothing was measured.
    pub(super) fn of(rounds: &[Vec<Batch>], plan: &Plan) -> Option<Self> {
        let mut rows = Vec::new();
        for at_once in &plan.at_once {
            for source in Source::ALL {
                rows.push(row(rounds, source, *at_once)?);
            }
        }
        (!rows.is_empty()).then_some(Self {
            kept_ready: plan.ready,
            rows,
        })
    }

    /// Returns rows and ratios as a table.
    pub fn table(&self) -> Table {
        let mut table = Table::new([
            "sandboxes",
            "at once",
            "p50 us",
            "p99 us",
            "new groups to these",
            "95 % interval",
            "were ready",
            "groups kept",
        ]);
        for row in &self.rows {
            let ratio = row.new_to_these;
            table.row([
                row.source.to_owned(),
                row.at_once.to_string(),
                format!("{:.1}", row.after.p50),
                format!("{:.1}", row.after.p99),
                ratio.map_or(String::new(), |ratio| format!("{:.2} ×", ratio.median)),
                ratio.map_or(String::new(), |ratio| {
                    format!("{:.2} to {:.2}", ratio.low, ratio.high)
                }),
                format!("{} of {}", row.were_ready, row.after.count),
                row.groups_kept
                    .map_or("–".to_owned(), |share| format!("{:.0} %", 100.0 * share)),
            ]);
        }
        table
    }

    /// Returns the parts of making a sandbox as a table.
    pub fn parts_table(&self) -> Table {
        let mut table = Table::new([
            "parts, median us",
            "at once",
            "group",
            "fork",
            "enter",
            "VM",
            "jail",
            "preset",
        ]);
        for row in &self.rows {
            let parts = row.parts;
            let [group, fork, enter, vm, jail] =
                [parts.group, parts.fork, parts.enter, parts.vm, parts.jail]
                    .map(|us| format!("{us:.1}"));
            let preset = if row.source == Source::Ahead.name() {
                format!("{:.1}", parts.preset)
            } else {
                String::new()
            };
            let at_once = row.at_once.to_string();
            table.row([
                row.source.to_owned(),
                at_once,
                group,
                fork,
                enter,
                vm,
                jail,
                preset,
            ]);
        }
        table
    }
}

fn row(rounds: &[Vec<Batch>], source: Source, at_once: u32) -> Option<Row> {
    let of = |source: Source| {
        rounds.iter().filter_map(move |round| {
            let mut batches = round.iter();
            batches.find(|batch| batch.source == source && batch.at_once == at_once)
        })
    };
    let sandboxes: Vec<ReceivedSandbox> = of(source)
        .flat_map(|batch| &batch.sandboxes)
        .copied()
        .collect();
    let times: Vec<Duration> = sandboxes.iter().map(|got| got.after).collect();
    let pairs = of(source).zip(of(Source::New));
    let pairs = pairs.filter_map(|(these, new)| Some((new.median()?, these.median()?)));
    let new_to_these = (source != Source::New).then(|| Ratio::of(&pairs.collect::<Vec<_>>()));
    let (hits, misses) = of(source).fold((0, 0), |(hits, misses), batch| {
        (hits + batch.groups.0, misses + batch.groups.1)
    });
    Some(Row {
        source: source.name(),
        at_once,
        after: Percentiles::of(&times)?,
        new_to_these: new_to_these.flatten(),
        were_ready: sandboxes.iter().filter(|got| got.was_ready).count(),
        groups_kept: (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64),
        parts: parts(&sandboxes)?,
    })
}

impl Batch {
    /// Returns the median time to get a sandbox, in microseconds.
    fn median(&self) -> Option<f64> {
        let times: Vec<Duration> = self.sandboxes.iter().map(|got| got.after).collect();
        stats::median(&times)
    }
}

fn parts(sandboxes: &[ReceivedSandbox]) -> Option<PartMedians> {
    let median = |of: fn(&SandboxCreationTimes) -> Duration| {
        let times: Vec<Duration> = sandboxes.iter().map(|got| of(&got.parts)).collect();
        stats::median(&times)
    };
    Some(PartMedians {
        group: median(|parts| parts.group)?,
        fork: median(|parts| parts.fork)?,
        enter: median(|parts| parts.enter)?,
        vm: median(|parts| parts.vm)?,
        jail: median(|parts| parts.jail)?,
        preset: median(|parts| parts.specialising)?,
    })
}

impl fmt::Display for SandboxesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} sandboxes are kept ready where they are made ahead.\n",
            self.kept_ready
        )?;
        writeln!(f, "{}", self.table())?;
        write!(f, "{}", self.parts_table())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(source: Source, at_once: u32, microseconds: &[u64], groups: (u64, u64)) -> Batch {
        let got = |microseconds: &u64| ReceivedSandbox {
            after: Duration::from_micros(*microseconds),
            was_ready: source == Source::Ahead && *microseconds < 100,
            parts: SandboxCreationTimes {
                fork: Duration::from_micros(*microseconds / 2),
                ..SandboxCreationTimes::default()
            },
        };
        Batch {
            source,
            at_once,
            sandboxes: microseconds.iter().map(got).collect(),
            groups,
        }
    }

    fn plan(at_once: &[u32]) -> Plan {
        Plan {
            rounds: 2,
            at_once: at_once.to_vec(),
            sandboxes: 2,
            ready: 3,
        }
    }

    fn round(by: u64) -> Vec<Batch> {
        vec![
            batch(Source::Ahead, 2, &[2 * by, 2 * by], (2, 0)),
            batch(Source::Recycled, 2, &[500 * by, 700 * by], (3, 1)),
            batch(Source::New, 2, &[1000 * by, 1400 * by], (0, 2)),
        ]
    }

    #[test]
    fn ratios_are_of_the_same_round_and_shares_of_all() {
        // The second round is ten times slower than the first, and the ratios are the same.
        let found = SandboxesReport::of(&[round(1), round(10)], &plan(&[2])).unwrap();
        let [ahead, recycled, new] = found.rows.as_slice() else {
            panic!("{found:?}");
        };
        assert!((recycled.new_to_these.unwrap().median - 2.0).abs() < 1e-9);
        assert!((ahead.new_to_these.unwrap().high - 600.0).abs() < 1e-9);
        assert_eq!(new.new_to_these, None);
        assert_eq!((ahead.were_ready, recycled.were_ready), (4, 0));
        assert_eq!(
            (recycled.groups_kept, new.groups_kept),
            (Some(0.75), Some(0.0))
        );
        assert_eq!((new.after.count, found.kept_ready), (4, 3));
        assert!((new.parts.fork - (700.0 + 5000.0) / 2.0).abs() < 1e-9);
        let text = found.to_string();
        assert!(text.contains("4 of 4") && text.contains("75 %"), "{text}");
    }

    #[test]
    fn a_source_without_sandboxes_has_no_report() {
        assert!(SandboxesReport::of(&[round(1)], &plan(&[2, 12])).is_none());
        assert!(SandboxesReport::of(&[], &plan(&[])).is_none());
        let mut no_groups = round(1);
        for batch in &mut no_groups {
            batch.groups = (0, 0);
        }
        let found = SandboxesReport::of(&[no_groups], &plan(&[2])).unwrap();
        assert_eq!(found.rows[0].groups_kept, None);
    }

    #[test]
    fn each_source_has_the_pool_that_its_name_describes() {
        let options = |source: Source| source.options(24);
        let [ahead, recycled, new] = Source::ALL.map(options);
        assert_eq!((ahead.zygotes, recycled.zygotes), (24, 0));
        assert_eq!((new.zygotes, new.groups_kept), (0, 0));
        assert!(recycled.groups_kept > 0 && ahead.groups_kept > 0);
    }
}
