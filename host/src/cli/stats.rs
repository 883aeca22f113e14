//! `stats`: the node's metrics for people.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use faasw::{admin::Client, metrics::Summary};

use super::{
    args::Stats,
    exit::Exit,
    output::{data_dir, duration, print, print_json, size},
};

/// Prints what the node has done since it started.
pub async fn stats(args: Stats) -> Result<(), Exit> {
    let metrics = Client::new(&data_dir(args.node)?).metrics().await?;
    let summary = Summary::read(&metrics);
    if args.format.json {
        return print_json(&summary);
    }
    print(text(&summary))
}

fn text(summary: &Summary) -> String {
    let mut text = format!(
        "functions    {}; deployments: {}\nmicroVMs     {}\nmemory       {}\nunder way    {}\n",
        summary.functions,
        counts(&summary.deployments),
        counts(&summary.microvms),
        memory(summary),
        summary.under_way,
    );
    // Writing to a string does not fail, here and below.
    if summary.forbidden_calls > 0 {
        let count = summary.forbidden_calls;
        let _ = writeln!(text, "processes ended for a forbidden system call {count}");
    }
    if summary.unknown > 0 {
        let _ = writeln!(text, "no such name {}", summary.unknown);
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

/// What functions hold, and what they may.
fn memory(summary: &Summary) -> String {
    let of = |sizes: &BTreeMap<String, u64>, what| size(sizes.get(what).copied().unwrap_or(0));
    format!(
        "{} of {} seeds, {} parked; a function at most {}",
        of(&summary.memory, "seeds"),
        of(&summary.memory_budget, "seeds"),
        of(&summary.memory, "parked"),
        of(&summary.memory_budget, "function"),
    )
}

fn seconds(seconds: f64) -> String {
    duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// `12 of 200, 1 of 404`.
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
