//! `stats`: shows the node's metrics to people.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use faasw_client::{GroupSummary, NodeSummary, ZygoteSummary};

use super::{
    args::Stats,
    exit::Exit,
    output::{duration, print, print_json, size},
};

/// Prints a summary of the node's metrics since its start.
pub async fn stats(args: Stats) -> Result<(), Exit> {
    let summary = args.node.client()?.stats().await?;
    if args.format.json {
        return print_json(&summary);
    }
    print(text(&summary))
}

fn text(summary: &NodeSummary) -> String {
    let mut text = format!(
        "functions    {}; deployments: {}\nmicroVMs     {}\nzygotes      {}\ngroups       \
         {}\nmemory       {}\n             {}\nunder way    {}\n",
        summary.functions,
        counts(&summary.deployments),
        counts(&summary.microvms),
        zygotes(&summary.zygotes),
        groups(&summary.groups),
        memory(summary),
        instance_memory(summary),
        summary.under_way,
    );
    // Writing to a string does not fail, here and below.
    match summary.confinement.as_str() {
        "" => {}
        "full" => text.push_str("confinement  full\n"),
        less => {
            let _ = writeln!(text, "confinement  {less}: less than full, as configured");
        }
    }
    if !summary.lacking.is_empty() {
        let why = counts(&summary.lacking);
        let _ = writeln!(text, "missing instances of --min-warm, by cause: {why}");
    }
    let reset = format!(" ({} were reset)", of(&summary.resets, "done"));
    for (what, count, more) in [
        (
            "processes ended for a forbidden system call",
            summary.forbidden_calls,
            "",
        ),
        (
            "instances that could not be reset and ended",
            of(&summary.resets, "failed"),
            &reset,
        ),
        (
            "seeds without specialised zygotes after failures",
            summary.abandoned_parents,
            "",
        ),
        (
            "processes ended for lack of memory",
            summary.out_of_memory,
            "",
        ),
        ("unknown functions", summary.unknown, ""),
    ] {
        if count > 0 {
            let _ = writeln!(text, "{what} {count}{more}");
        }
    }
    let _ = writeln!(
        text,
        "\n{:8}  {:>9}  {:>9}  {:>9}  {:>9}",
        "STAGE", "REQUESTS", "MEAN", "MEDIAN", "99 %"
    );
    for stage in &summary.stages {
        let _ = writeln!(
            text,
            "{:8}  {:>9}  {:>9}  {:>9}  {:>9}",
            stage.stage,
            stage.count,
            seconds(stage.mean),
            seconds(stage.median),
            seconds(stage.p99),
        );
    }
    for (name, of) in &summary.by_function {
        let _ = writeln!(text, "\n{name}: {}", counts(&of.requests));
        for (what, values) in [
            ("served by", &of.served),
            ("problems", &of.problems),
            ("traps", &of.traps),
        ] {
            if !values.is_empty() {
                let _ = writeln!(text, "  {what}: {}", counts(values));
            }
        }
        let answered: u64 = of.requests.values().sum();
        if answered > 0 && of.vm_exits > 0 {
            let each = |count: u64| count as f64 / answered as f64;
            let _ = writeln!(
                text,
                "  a request: {:.1} page faults, {:.1} VM exits",
                each(of.page_faults),
                each(of.vm_exits)
            );
        }
    }
    text
}

/// Describes the zygotes, and how often one was ready.
fn zygotes(zygotes: &ZygoteSummary) -> String {
    format!(
        "{} ready; {} wanted, {} to {} by demand; {}",
        counts(&zygotes.ready),
        of(&zygotes.wanted, "now"),
        of(&zygotes.wanted, "low"),
        of(&zygotes.wanted, "high"),
        takes(&zygotes.takes),
    )
}

/// Describes the control groups, and how often a free one was available.
fn groups(groups: &GroupSummary) -> String {
    format!(
        "{}; at most {} kept free; {}",
        counts(&groups.count),
        groups.free_max,
        takes(&groups.takes),
    )
}

/// Describes the hits and misses of a pool, and the share of hits.
fn takes(takes: &BTreeMap<String, u64>) -> String {
    let (hits, misses) = (of(takes, "hit"), of(takes, "miss"));
    let all = hits.saturating_add(misses);
    match all {
        0 => "none taken".to_owned(),
        _ => format!(
            "{hits} hits, {misses} misses ({:.1} %)",
            100.0 * hits as f64 / all as f64
        ),
    }
}

fn of(counts: &BTreeMap<String, u64>, what: &str) -> u64 {
    counts.get(what).copied().unwrap_or(0)
}

/// Describes the memory that functions hold, and their budgets.
fn memory(summary: &NodeSummary) -> String {
    let of = |sizes: &BTreeMap<String, u64>, what| size(of(sizes, what));
    format!(
        "{} of {} seeds, {} warm; a function at most {}",
        of(&summary.memory, "seeds"),
        of(&summary.memory_budget, "seeds"),
        of(&summary.memory, "warm"),
        of(&summary.memory_budget, "function"),
    )
}

/// Describes the memory that all microVMs use together, and its limit.
fn instance_memory(summary: &NodeSummary) -> String {
    let max = match of(&summary.instance_memory, "max") {
        0 => return "no memory limit for all microVMs".to_owned(),
        max => size(max),
    };
    match of(&summary.instance_memory, "used") {
        0 => format!("all microVMs at most {max}; their use is unknown"),
        used => format!("all microVMs {} of {max}", size(used)),
    }
}

fn seconds(seconds: f64) -> String {
    duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Formats counts by name, as `12 200, 1 404`.
fn counts(counts: &BTreeMap<String, u64>) -> String {
    let texts: Vec<_> = counts
        .iter()
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    if texts.is_empty() {
        "none".into()
    } else {
        texts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reports_sizes_and_hit_rates_of_pools() {
        let counts = |counts: &[(&str, u64)]| {
            let counts = counts.iter().map(|(what, count)| ((*what).into(), *count));
            counts.collect()
        };
        let summary = NodeSummary {
            zygotes: ZygoteSummary {
                ready: counts(&[("generic", 1), ("specialised", 3)]),
                wanted: counts(&[("low", 4), ("now", 8), ("high", 32)]),
                takes: counts(&[("hit", 30), ("miss", 10)]),
            },
            groups: GroupSummary {
                count: counts(&[("free", 2), ("used", 9)]),
                free_max: 256,
                ..GroupSummary::default()
            },
            lacking: counts(&[("seed-memory", 3), ("max-warm", 12)]),
            instance_memory: counts(&[("used", 1 << 20), ("max", 4 << 20)]),
            out_of_memory: 2,
            confinement: "reduced".to_owned(),
            ..NodeSummary::default()
        };
        let text = text(&summary);
        for line in [
            "zygotes      1 generic, 3 specialised ready; 8 wanted, 4 to 32 by demand; 30 hits, 10 \
             misses (75.0 %)",
            "groups       2 free, 9 used; at most 256 kept free; none taken",
            "             all microVMs 1.0 MiB of 4.0 MiB",
            "processes ended for lack of memory 2",
            "confinement  reduced: less than full, as configured",
            "missing instances of --min-warm, by cause: 12 max-warm, 3 \
             seed-memory",
        ] {
            assert!(text.lines().any(|other| other == line), "{text}");
        }
    }
}
