//! `faasw-bench sandboxes`: the time to get a sandbox, with pools of kernel resources and without
//! (AFaaS fig. 8 and 15).
//!
//! Sandboxes come from three pools of this program's own, without functions. The first makes
//! sandboxes ahead. The second makes them on demand, in control groups that it kept from earlier
//! ones. The third makes the groups, too. One task requests sandboxes, or many do at once. The time
//! of a sandbox is from the request until it is closed in its jail and ready to be forked to a
//! seed.

mod report;

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use faasw_pool::{
    PoolOptions,
    measuring::{SandboxCreationTimes, Sandboxes, TakenSandbox},
};
use tokio::{runtime::Runtime, sync::Barrier, time::Instant};

use crate::{interrupt, table};
pub use report::{Row, SandboxesReport};

/// Options of the `sandboxes` benchmark.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    plan: Plan,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How much to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct Plan {
    /// Rounds, in each of which everything is measured once
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Numbers of simultaneous requests for a sandbox
    #[arg(
        long,
        value_name = "ASKERS",
        value_delimiter = ',',
        default_values_t = AT_ONCE,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub at_once: Vec<u32>,
    /// Sandboxes in a round for each of these numbers, or somewhat more
    #[arg(
        long,
        value_name = "SANDBOXES",
        default_value_t = 24,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub sandboxes: u32,
    /// Zygotes that the pool with zygotes keeps ready (a node's --zygotes); a request that finds
    /// none has a sandbox made
    #[arg(long, value_name = "SANDBOXES", default_value_t = 24)]
    pub ready: usize,
}

/// Default numbers of tasks that request sandboxes at once.
pub const AT_ONCE: [u32; 3] = [1, 12, 24];

/// The source of sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Sandboxes that were made ahead and specialised.
    Ahead,
    /// Sandboxes that are made on demand, in groups that were kept.
    Recycled,
    /// Sandboxes that are made on demand, in new groups.
    New,
}

impl Source {
    const ALL: [Self; 3] = [Self::Ahead, Self::Recycled, Self::New];

    fn name(self) -> &'static str {
        match self {
            Self::Ahead => "made ahead",
            Self::Recycled => "made when asked, groups kept",
            Self::New => "made when asked, new groups",
        }
    }

    fn options(self, ready: usize) -> PoolOptions {
        let usual = PoolOptions {
            zygotes: 0,
            ..PoolOptions::default()
        };
        match self {
            Self::Ahead => PoolOptions {
                zygotes: ready,
                ..usual
            },
            Self::Recycled => usual,
            Self::New => PoolOptions {
                groups_kept: 0,
                ..usual
            },
        }
    }
}

/// A sandbox that a task received.
#[derive(Clone, Copy, Debug)]
struct ReceivedSandbox {
    /// Time from the request until the sandbox was there.
    after: Duration,
    was_ready: bool,
    parts: SandboxCreationTimes,
}

/// The sandboxes of one source and one number of tasks in one round.
#[derive(Clone, Debug)]
struct Batch {
    source: Source,
    at_once: u32,
    sandboxes: Vec<ReceivedSandbox>,
    /// Control groups that jails took meanwhile: the number of kept ones and of new ones.
    groups: (u64, u64),
}

/// A pool, and the source that it stands for.
struct Contestant {
    source: Source,
    pool: Arc<Sandboxes>,
}

/// Measures and prints.
///
/// # Errors
/// Returns the errors of [`measure`].
pub fn run(arguments: &Arguments) -> Result<()> {
    interrupt::catch();
    let found = measure(&arguments.plan)?;
    table::print(arguments.json, &found, || found.to_string())
}

/// Measures all sources in alternating rounds.
///
/// # Errors
/// Returns an error if a pool does not start or cannot make a sandbox, and after an interrupt.
pub fn measure(plan: &Plan) -> Result<SandboxesReport> {
    let runtime = Runtime::new()?;
    runtime.block_on(async {
        let mut contestants = Vec::new();
        let measured = contest(plan, &mut contestants).await;
        // The pools are shut down even if the measurement failed.
        for contestant in &contestants {
            contestant.pool.shutdown().await;
        }
        SandboxesReport::of(&measured?, plan).context("nothing was measured")
    })
}

async fn contest(plan: &Plan, contestants: &mut Vec<Contestant>) -> Result<Vec<Vec<Batch>>> {
    for source in Source::ALL {
        let pool = Sandboxes::start(source.options(plan.ready)).await?;
        contestants.push(Contestant {
            source,
            pool: Arc::new(pool),
        });
    }
    let mut rounds = Vec::new();
    // The first round fills caches and pools, and does not count.
    for _ in 0..=plan.rounds {
        let mut round = Vec::new();
        for at_once in &plan.at_once {
            for contestant in contestants.iter() {
                round.push(contestant.measure(*at_once, plan.sandboxes).await?);
            }
        }
        rounds.push(round);
    }
    rounds.remove(0);
    Ok(rounds)
}

impl Contestant {
    /// Requests `at_once` sandboxes at a time, until there were at least `sandboxes`.
    async fn measure(&self, at_once: u32, sandboxes: u32) -> Result<Batch> {
        let before = self.pool.stats().groups;
        let mut got = Vec::new();
        for _ in 0..sandboxes.div_ceil(at_once) {
            interrupt::check()?;
            self.pool.filled().await;
            got.extend(self.ask(at_once).await?);
        }
        // The pool finishes its replacements first, so that they do not disturb other contestants.
        self.pool.filled().await;
        let after = self.pool.stats().groups;
        Ok(Batch {
            source: self.source,
            at_once,
            sandboxes: got,
            groups: (after.hits - before.hits, after.misses - before.misses),
        })
    }

    /// Requests `at_once` sandboxes at a time, and ends them.
    async fn ask(&self, at_once: u32) -> Result<Vec<ReceivedSandbox>> {
        let all_are_there = Arc::new(Barrier::new(usize::try_from(at_once)?));
        let askers: Vec<_> = (0..at_once)
            .map(|_| {
                let (pool, all_are_there) = (self.pool.clone(), all_are_there.clone());
                tokio::spawn(async move {
                    all_are_there.wait().await;
                    let asked = Instant::now();
                    let taken = pool.take().await;
                    taken.map(|taken| (taken, asked.elapsed()))
                })
            })
            .collect();
        let mut taken: Vec<(TakenSandbox, Duration)> = Vec::new();
        for asker in askers {
            taken.push(asker.await??);
        }
        let mut got = Vec::new();
        for (taken, after) in taken {
            got.push(ReceivedSandbox {
                after,
                was_ready: taken.was_ready(),
                parts: taken.creation_times(),
            });
            taken.end().await;
        }
        Ok(got)
    }
}
