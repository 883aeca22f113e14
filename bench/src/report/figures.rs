//! The results of the parts, as figures beside their goals.

use super::{
    figure::{Figure, Goal, Unit},
    function::{Function, TAIL, WARM},
    measure::{Contest, Crowd, Results},
};
use crate::{
    contest::{Contestant, Summary},
    floor, memory, overload, sandboxes, soak,
};

/// The time in a warm microVM, as a multiple of the floor.
const TO_FLOOR: Goal = Goal::AtMost(1.5);
/// How much longer a request may take in a generic zygote than in a warm instance, in
/// microseconds.
const ZYGOTE_OVER_WARM: Goal = Goal::AtMost(120.0);
/// The least throughput of the last window of a soak, as a multiple of the first's.
const STEADY: Goal = Goal::AtLeast(0.95);
const FLAT: Goal = Goal::AtMost(1.05);
const NONE: Goal = Goal::AtMost(0.0);
/// The least that is served at the largest load, as a part of the peak.
const KEPT: Goal = Goal::AtLeast(0.9);
/// The highest p99 of answers at the largest load, in microseconds.
const BOUNDED: Goal = Goal::AtMost(1_000_000.0);

/// Returns every figure, in the order of the report.
pub fn of(results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    if let Some(found) = &results.floor {
        figures.extend(of_floor(found));
    }
    if let Some(found) = &results.sandboxes {
        figures.extend(of_sandboxes(found));
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
    if let Some(found) = &results.overload {
        figures.extend(of_overload(found));
    }
    figures
}

fn of_floor(found: &floor::Found) -> Vec<Figure> {
    let warm = found.in_vm(floor::WARM);
    let zygote = found.in_vm(floor::ZYGOTE);
    let us = |value: Option<f64>| value.map(|value| Unit::Microseconds.write(value));
    let over = zygote.zip(warm).map(|(zygote, warm)| zygote - warm);
    let floor = us(Some(found.floor.p50));
    vec![
        Figure::ratio(
            "warm microVM, request written to handler finished, to an empty KVM_RUN between \
             two processes"
                .to_owned(),
            found.warm_to_floor,
            Some(TO_FLOOR),
        )
        .of(us(warm), floor),
        Figure::number(
            "generic zygote, the same, over the warm one".to_owned(),
            over,
            Unit::Microseconds,
            Some(ZYGOTE_OVER_WARM),
        )
        .of(us(zygote), us(warm)),
    ]
}

fn of_sandboxes(found: &sandboxes::Found) -> Vec<Figure> {
    let us = |row: &sandboxes::Row| Some(Unit::Microseconds.write(row.after.p50));
    let new = |at_once| {
        let mut rows = found.rows.iter();
        rows.find(|row| row.at_once == at_once && row.new_to_these.is_none())
    };
    let pooled = found.rows.iter().filter(|row| row.new_to_these.is_some());
    pooled
        .map(|row| {
            let what = format!(
                "sandbox made when asked, new groups, {} at once: p50 to {}",
                row.at_once, row.source
            );
            let new = new(row.at_once).and_then(us);
            Figure::ratio(what, row.new_to_these, None).of(new, us(row))
        })
        .collect()
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
        let what = format!("{}, {}: {what}", function.title(), contest.title());
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
            warm.as_ref().and_then(|warm| ours.latency_against(warm)),
            goals.map(|_| WARM),
            warm.as_ref().map_or((None, None), |warm| pair(warm, p50)),
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
        let what = format!("{}, {}: errors", function.title(), contest.title());
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
            format!("{name}: unique set size per warm instance"),
            found.unique_bytes,
            unique,
        ),
        figure(
            format!("{name}: fall of MemAvailable per instance, over {count}"),
            found.available_bytes,
            fall,
        ),
    ];
    let wanted = found.wanted.map(|wanted| Goal::AtLeast(f64::from(wanted)));
    figures.push(
        Figure::number(
            format!("{name}: warm instances of one function"),
            Some(count as f64),
            Unit::Count,
            wanted,
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
        format!("warm instances of {functions} functions, {of_each} of each asked for"),
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

fn of_overload(found: &overload::Found) -> Vec<Figure> {
    let per_second = |value: f64| Some(format!("{value:.0}/s"));
    let largest = found.largest();
    let tail = largest.and_then(|step| Some(step.accepted?.p99));
    let load = largest.map_or(0.0, |step| step.load);
    vec![
        Figure::number(
            format!("{load} times what can be done: answered, to the peak"),
            found.kept().ok(),
            Unit::Times,
            Some(KEPT),
        )
        .of(
            largest.and_then(|step| per_second(step.goodput)),
            per_second(found.peak()),
        ),
        Figure::number(
            format!("{load} times what can be done: p99 of what is answered"),
            tail,
            Unit::Microseconds,
            Some(BOUNDED),
        )
        .of(tail.map(|tail| Unit::Microseconds.write(tail)), None),
        Figure::number(
            "overload: neither answered nor refused".to_owned(),
            Some(found.errors() as f64),
            Unit::Count,
            Some(NONE),
        )
        .of(Some(found.errors().to_string()), None),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::Verdict;

    #[test]
    fn fewer_instances_than_asked_for_miss_their_goal() {
        let crowd = |instances| {
            let crowd = Crowd {
                functions: 100,
                of_each: 3,
                instances,
            };
            of_crowd(&crowd).verdict()
        };
        assert_eq!(crowd(300), Some(Verdict::Met));
        assert_eq!(crowd(299), Some(Verdict::Missed));
    }

    #[test]
    fn memory_is_held_to_the_goals_of_its_function() {
        let found = memory::Found {
            wanted: Some(500),
            instances: 500,
            before: 4,
            microvms: None,
            unique_bytes: Some(399.0 * 1024.0),
            available_bytes: Some(2.0 * 1024.0 * 1024.0),
            idle_core_share: 0.001,
        };
        let verdicts = |name: &str| {
            let function = format!("{name}=f").parse().unwrap();
            let figures = of_memory(&function, &found);
            figures.iter().map(Figure::verdict).collect::<Vec<_>>()
        };
        let (yes, no) = (Some(Verdict::Met), Some(Verdict::Missed));
        assert_eq!(verdicts("hello"), [yes, no, yes, yes]);
        assert_eq!(verdicts("js"), [yes, yes, yes, yes]);
        assert_eq!(verdicts("mine"), [None, None, yes, yes]);
    }

    #[test]
    fn nothing_measured_gives_no_figures() {
        assert!(of(&Results::default()).is_empty());
    }
}
