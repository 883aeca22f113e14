//! The report as Markdown, and its plots.

use std::ffi::OsStr;

use super::{
    figure::{self, Figure, Goal, Unit},
    function::{Function, TAIL, WARM},
    host::Host,
    measure::{Contest, Crowd, Results},
    plot::{Bar, Chart, Group},
    server::{Reuse, peer_command},
};
use crate::{
    contest::{self, Contestant, Summary},
    floor, memory, soak,
};

/// What stands above the figures.
pub struct Heading {
    /// When and where.
    pub host: Host,
    /// The command that made the report.
    pub command: String,
    /// The node's version.
    pub faasw: Option<String>,
    /// The peer's version.
    pub wasmtime: Option<String>,
    /// Whether rounds were few and short.
    pub quick: bool,
}

/// The parked way to the floor.
const TO_FLOOR: Goal = Goal::AtMost(1.5);
/// How much longer a shell's way may take than the parked one, in microseconds.
const SHELL_OVER_PARKED: Goal = Goal::AtMost(120.0);
/// The last minute of a soak to the first.
const STEADY: Goal = Goal::AtLeast(0.95);
const FLAT: Goal = Goal::AtMost(1.05);
const NONE: Goal = Goal::AtMost(0.0);

/// The whole report; plots are looked for in `plots`, beside it.
pub fn markdown(results: &Results, heading: &Heading, plots: Option<&OsStr>) -> String {
    let mut text = heading.markdown();
    text.push_str("\n## Figures and goals\n\n");
    text.push_str(&figure::table(&figures(results)).markdown());
    for (name, error) in &results.failures {
        text.push_str(&format!(
            "\nNot measured: {name}: {}\n",
            error.replace('\n', "; ")
        ));
    }
    let plot = |name: &str| match plots {
        Some(folder) => format!("\n![]({}/{name}.svg)\n", folder.to_string_lossy()),
        None => String::new(),
    };
    for (function, contests) in &results.contests {
        let name = &function.name;
        text.push_str(&format!("\n## {} against its peers\n", function.title()));
        for kind in ["latency", "throughput", "cpu"] {
            text.push_str(&plot(&format!("{kind}-{name}")));
        }
        for contest in contests {
            let summaries: Vec<Summary> = contest.all().filter_map(Contestant::summary).collect();
            text.push_str(&format!("\n{}:\n\n", connections(contest)));
            text.push_str(&contest::table(&summaries).markdown());
        }
    }
    if let Some(found) = &results.floor {
        text.push_str("\n## The way through a microVM\n");
        text.push_str(&plot("floor"));
        text.push_str(&format!(
            "\n{}\nStages as `Server-Timing` tells them; *at once* means that requests came together \
             and competed:\n\n{}",
            found.floor_table().markdown(),
            found.ways_table().markdown()
        ));
    }
    for (function, found) in &results.memory {
        text.push_str(&format!("\n## Memory of {}\n\n", function.title()));
        text.push_str(&found.table().markdown());
    }
    if let Some(found) = &results.soak {
        text.push_str("\n## Load for a long time\n");
        text.push_str(&plot("soak"));
        text.push_str(&format!("\n{}", found.table().markdown()));
    }
    text
}

impl Heading {
    fn markdown(&self) -> String {
        let host = &self.host;
        let version = |version: &Option<String>| version.clone().unwrap_or("unknown".to_owned());
        let mut text = format!(
            "# Performance\n\nMade by `faasw-bench report`; [bench/README.md](../bench/README.md) says how \
             each number is measured. Ratios are medians over rounds of one run; the interval\nholds \
             the median with 95 % confidence. Machines like this are noisy: trust the ratios.\n\n"
        );
        if self.quick {
            text.push_str(
                "**Made with `--quick`: this shows that everything works, not how fast it is.**\n\n",
            );
        }
        for (name, value) in [
            ("date", host.date.clone()),
            ("processor", format!("{}, {} cores", host.cpu, host.cores)),
            ("memory", format!("{} MiB", host.memory_mib)),
            ("kernel", host.kernel.clone()),
            ("KVM", host.kvm.clone()),
            ("node", version(&self.faasw)),
            ("peer", version(&self.wasmtime)),
            ("command", format!("`{}`", self.command)),
            ("fresh peer", format!("`{}`", peer_command(Reuse::Fresh))),
            ("warm peer", format!("`{}`", peer_command(Reuse::Warm))),
        ] {
            text.push_str(&format!("- {name}: {value}\n"));
        }
        text
    }
}

fn connections(contest: &Contest) -> String {
    match contest.connections {
        1 => "1 connection".to_owned(),
        many => format!("{many} connections"),
    }
}

/// Every figure with its goal.
fn figures(results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    if let Some(found) = &results.floor {
        figures.extend(of_floor(found));
    }
    for (function, contests) in &results.contests {
        for contest in contests {
            figures.extend(of_contest(function, contest));
        }
    }
    for (function, found) in &results.memory {
        figures.extend(of_memory(function, found));
    }
    figures.extend(results.crowd.as_ref().map(of_crowd));
    if let Some(found) = &results.soak {
        figures.extend(of_soak(found));
    }
    figures
}

fn of_floor(found: &floor::Found) -> Vec<Figure> {
    let parked = found.in_vm(floor::PARKED);
    let shell = found.in_vm(floor::SHELL);
    let us = |value: Option<f64>| value.map(|value| Unit::Microseconds.write(value));
    let over = shell.zip(parked).map(|(shell, parked)| shell - parked);
    let floor = us(Some(found.floor.p50));
    vec![
        Figure::ratio(
            "parked microVM, request written to handler finished, to an empty KVM_RUN between \
             two processes"
                .to_owned(),
            found.parked_to_floor,
            Some(TO_FLOOR),
        )
        .of(us(parked), floor),
        Figure::number(
            "generic shell, the same, over the parked one".to_owned(),
            over,
            Unit::Microseconds,
            Some(SHELL_OVER_PARKED),
        )
        .of(us(shell), us(parked)),
    ]
}

fn of_contest(function: &Function, contest: &Contest) -> Vec<Figure> {
    let Contest {
        ours, fresh, warm, ..
    } = contest;
    let goals = function.goals();
    let told = |contestant: &Contestant, write: fn(&Summary) -> String| {
        contestant.summary().map(|summary| write(&summary))
    };
    let p50 = |summary: &Summary| Unit::Microseconds.write(summary.latency.p50);
    let tail = |summary: &Summary| format!("{:.2}", summary.latency.p99 / summary.latency.p50);
    let per_second = |summary: &Summary| format!("{:.0}/s", summary.per_second);
    let cpu = |summary: &Summary| {
        let cpu = summary.cpu_microseconds;
        cpu.map_or("–".to_owned(), |cpu| Unit::Microseconds.write(cpu))
    };
    let pair =
        |other: &Contestant, write: fn(&Summary) -> String| (told(ours, write), told(other, write));
    let figure = |what: &str, ratio, goal, (ours, against): (Option<String>, Option<String>)| {
        let what = format!("{}, {}: {what}", function.title(), connections(contest));
        Figure::ratio(what, ratio, goal).of(ours, against)
    };
    let mut figures = Vec::new();
    if contest.connections == 1 {
        figures.push(figure(
            "p50 to fresh instances'",
            ours.latency_against(fresh),
            goals.map(|goals| goals.latency),
            pair(fresh, p50),
        ));
        figures.push(figure(
            "p50 to one warm instance's",
            ours.latency_against(warm),
            goals.map(|_| WARM),
            pair(warm, p50),
        ));
        figures.push(figure(
            "p99/p50 to fresh instances'",
            ours.tail_against(fresh),
            goals.map(|_| TAIL),
            pair(fresh, tail),
        ));
    } else {
        figures.push(figure(
            "throughput to fresh instances'",
            ours.throughput_against(fresh),
            goals.map(|goals| goals.throughput),
            pair(fresh, per_second),
        ));
        let what = format!("{}, {}: errors", function.title(), connections(contest));
        let errors = ours.errors() as f64;
        let against = Some(fresh.errors().to_string());
        figures.push(
            Figure::number(what, Some(errors), Unit::Count, goals.map(|_| NONE))
                .of(Some(ours.errors().to_string()), against),
        );
    }
    figures.push(figure(
        "CPU time per answer to fresh instances'",
        ours.cpu_against(fresh),
        None,
        pair(fresh, cpu),
    ));
    figures
}

fn of_memory(function: &Function, found: &memory::Found) -> Vec<Figure> {
    let (unique, fall) = function.goals().and_then(|goals| goals.memory).unzip();
    let name = function.title();
    let count = found.instances;
    let kib = |value: Option<f64>| value.map(memory::kibibytes);
    let figure = |what: String, value, goal| {
        Figure::number(what, value, Unit::KiB, goal).of(kib(value), None)
    };
    let mut figures = vec![
        figure(
            format!("{name}: unique set size per parked instance"),
            found.unique_bytes,
            unique,
        ),
        figure(
            format!("{name}: fall of MemAvailable per instance, over {count}"),
            found.available_bytes,
            fall,
        ),
    ];
    let wanted = f64::from(found.wanted);
    figures.push(
        Figure::number(
            format!("{name}: parked instances of one function"),
            Some(count as f64),
            Unit::Count,
            Some(Goal::AtLeast(wanted)),
        )
        .of(Some(count.to_string()), None),
    );
    let share = format!("{:.2} % of a core", found.idle_core_share * 100.0);
    figures.push(
        Figure::number(
            format!("{name}: CPU of the idle node with {count} instances, of a core"),
            (count > 0).then_some(found.idle_core_share),
            Unit::Times,
            Some(Goal::AtMost(0.01)),
        )
        .of(Some(share), None),
    );
    figures
}

fn of_crowd(crowd: &Crowd) -> Figure {
    let Crowd {
        functions, of_each, ..
    } = crowd;
    Figure::number(
        format!("parked instances of {functions} functions, {of_each} of each asked for"),
        Some(crowd.instances as f64),
        Unit::Count,
        Some(Goal::AtLeast(f64::from(functions * of_each))),
    )
    .of(Some(crowd.instances.to_string()), None)
}

fn of_soak(found: &soak::Found) -> Vec<Figure> {
    let figure = |what: &str, of: fn(&soak::Window) -> f64, write: fn(f64) -> String, goal| {
        let ends = found.windows.last().zip(found.windows.first());
        let what = format!("long load: last {what} to the first");
        Figure::number(what, found.last_to_first(of), Unit::Times, Some(goal)).of(
            ends.map(|(last, _)| write(of(last))),
            ends.map(|(_, first)| write(of(first))),
        )
    };
    let count = |value: f64| format!("{value:.0}");
    vec![
        figure(
            "window's throughput",
            |window| window.per_second,
            |value| format!("{value:.0}/s"),
            STEADY,
        ),
        figure(
            "memory",
            |window| window.memory_bytes as f64,
            memory::kibibytes,
            FLAT,
        ),
        figure(
            "descriptors",
            |window| window.descriptors as f64,
            count,
            FLAT,
        ),
        figure("processes", |window| window.processes as f64, count, FLAT),
        Figure::number(
            "long load: errors".to_owned(),
            Some(found.errors() as f64),
            Unit::Count,
            Some(NONE),
        )
        .of(Some(found.errors().to_string()), None),
    ]
}

/// All plots by the names of their files.
pub fn charts(results: &Results) -> Vec<(String, Chart)> {
    let mut charts = Vec::new();
    for (function, contests) in &results.contests {
        let title = function.title();
        let mut add = |kind: &str, said: &str, contests: &[&Contest], value: Value| {
            let groups = contests.iter().map(|contest| Group {
                label: connections(contest),
                bars: contest
                    .all()
                    .filter_map(|c| bar(&c.summary()?, value))
                    .collect(),
            });
            let chart = Chart {
                title: format!("{title}: {said}"),
                groups: groups.collect(),
            };
            charts.push((format!("{kind}-{}.svg", function.name), chart));
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
    charts.extend(results.soak.as_ref().map(of_soak_chart));
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

fn of_floor_chart(found: &floor::Found) -> (String, Chart) {
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
    ("floor.svg".to_owned(), chart)
}

fn of_soak_chart(found: &soak::Found) -> (String, Chart) {
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
    ("soak.svg".to_owned(), chart)
}

impl Contest {
    fn all(&self) -> impl Iterator<Item = &Contestant> {
        [&self.ours, &self.fresh, &self.warm].into_iter()
    }
}
