//! The results of the parts, as plots.

use super::{
    curve::{Curve, Curves},
    measure::{Contest, Results},
    plot::{Bar, Chart, Group},
};
use crate::{contest::Summary, floor, overload, sandboxes, soak};

/// Returns all plots, with the names of their files.
pub fn of(results: &Results) -> Vec<(String, String)> {
    let mut charts = Vec::new();
    for (function, contests) in &results.contests {
        let title = function.title();
        let mut add = |kind: &str, said: &str, contests: &[&Contest], value: Value| {
            let groups = contests.iter().map(|contest| Group {
                label: contest.title(),
                bars: contest
                    .all()
                    .filter_map(|c| bar(&c.summary()?, value))
                    .collect(),
            });
            let chart = Chart {
                title: format!("{title}: {said}"),
                groups: groups.collect(),
            };
            charts.push((format!("{kind}-{}.svg", function.name), chart.to_string()));
        };
        let all: Vec<&Contest> = contests.iter().collect();
        let one: Vec<&Contest> = contests.iter().filter(|c| c.connections == 1).collect();
        let said = "latency over one connection, us, p50 / p99";
        add("latency", said, &one, |s| {
            Some((s.latency.p50, Some(s.latency.p99)))
        });
        add("throughput", "answers per second", &all, |s| {
            Some((s.per_second, None))
        });
        add("cpu", "CPU time per answer, us", &all, |s| {
            Some((s.cpu_microseconds?, None))
        });
    }
    charts.extend(results.floor.as_ref().map(of_floor_chart));
    charts.extend(results.sandboxes.as_ref().map(of_sandboxes_chart));
    charts.extend(results.soak.as_ref().map(of_soak_chart));
    charts.extend(results.overload.as_ref().map(of_overload_curves));
    charts
}

/// A bar's length and whisker.
type Value = fn(&Summary) -> Option<(f64, Option<f64>)>;

fn bar(summary: &Summary, value: Value) -> Option<Bar> {
    let (value, whisker) = value(summary)?;
    Some(Bar {
        label: summary.name.clone(),
        value,
        whisker,
    })
}

fn of_floor_chart(found: &floor::FloorReport) -> (String, String) {
    let plain = |label: &str, value: f64| Bar {
        label: label.to_owned(),
        value,
        whisker: None,
    };
    let mut bars = vec![
        plain("two messages", found.messages.p50),
        plain("KVM_RUN, one process", found.exit.p50),
        plain("KVM_RUN, two processes", found.floor.p50),
    ];
    for way in found.ways.iter().filter(|way| way.alone) {
        let label = format!("served by: {}", way.served);
        bars.extend(way.in_vm.map(|value| plain(&label, value)));
    }
    let chart = Chart {
        title: "request written to handler finished, beside the floor, us".to_owned(),
        groups: vec![Group {
            label: String::new(),
            bars,
        }],
    };
    ("floor.svg".to_owned(), chart.to_string())
}

fn of_sandboxes_chart(found: &sandboxes::SandboxesReport) -> (String, String) {
    let groups = found
        .rows
        .chunk_by(|one, next| one.at_once == next.at_once)
        .map(|rows| Group {
            label: rows
                .first()
                .map_or(String::new(), |row| format!("{} at once", row.at_once)),
            bars: rows
                .iter()
                .map(|row| Bar {
                    label: row.source.to_owned(),
                    value: row.after.p50,
                    whisker: Some(row.after.p99),
                })
                .collect(),
        });
    let chart = Chart {
        title: "asking for a sandbox to having it, us, p50 / p99".to_owned(),
        groups: groups.collect(),
    };
    ("sandboxes.svg".to_owned(), chart.to_string())
}

fn of_soak_chart(found: &soak::SoakReport) -> (String, String) {
    let bars = found.windows.iter().enumerate().map(|(index, window)| Bar {
        label: format!("{:.0} s", found.window_seconds * (index + 1) as f64),
        value: window.per_second,
        whisker: None,
    });
    let groups = bars.map(|bar| Group {
        label: String::new(),
        bars: vec![bar],
    });
    let chart = Chart {
        title: "long load: answers per second".to_owned(),
        groups: groups.collect(),
    };
    ("soak.svg".to_owned(), chart.to_string())
}

fn of_overload_curves(found: &overload::OverloadReport) -> (String, String) {
    let curve = |label: &str, of: fn(&overload::Step) -> f64| Curve {
        label: label.to_owned(),
        points: found
            .steps
            .iter()
            .map(|step| (step.offered, of(step)))
            .collect(),
    };
    let curves = Curves {
        title: "goodput under overload, requests per second".to_owned(),
        across: "offered".to_owned(),
        curves: vec![
            curve("answered", |step| step.goodput),
            curve("refused with 503", |step| step.refused),
        ],
    };
    ("overload.svg".to_owned(), curves.to_string())
}
