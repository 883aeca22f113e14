//! Every rule of the helper's filter is needed: without it, the filter ends the helper during a
//! compilation. Rules that no compilation uses are listed separately in
//! [`faasw_compiler::jail::rare_rules`]; each has a deed in [`deeds`] that uses it.
//!
//! This program is its own helper, with one rule less. It is started as the spawner starts the
//! helper, by a separate process with one thread.
//!
//! If the host allows no namespaces, every test here prints a message and counts as ignored.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod deeds;
#[path = "../support/testbed.rs"]
mod testbed;
mod uploads;

use std::{
    fmt,
    process::{Command, ExitCode, Stdio},
};

use faasw_compiler::protocol::{CompileReport, Task};
use faasw_compiler::{
    exhaustion::ExitingAllocator,
    helper,
    jail::{self, REFUSED},
    perform,
};
use faasw_jail::filter::Filter;
use libtest_mimic::{Arguments, Trial};

use deeds::{DEEDS, Deed, End};
use testbed::Testbed;
use uploads::BUSY;

#[global_allocator]
static ALLOCATOR: ExitingAllocator = ExitingAllocator;

/// The argument with which this program starts a helper; the work and the missing rule follow.
const TESTBED: &str = "--testbed";
/// A name that no rule has: no rule is missing.
const NONE: &str = "none";
/// Names for the answers of [`REFUSED`], in their order. Without such an answer, the call ends the
/// process.
const ANSWERS: [&str; REFUSED.len()] = ["use another call", "find no file"];
/// Processor time of each helper, in seconds.
const CPU_SECONDS: u64 = 60;

fn main() -> ExitCode {
    if let Some((part, _)) = testbed::part() {
        return play(&part);
    }
    let words: Vec<String> = std::env::args().collect();
    if let [_, testbed, work, missing] = words.as_slice()
        && testbed == TESTBED
    {
        println!("{}", run(work, missing));
        return ExitCode::SUCCESS;
    }
    let skip = !testbed::is_possible();
    let trials = trials().into_iter();
    let trials = trials.map(|trial| trial.with_ignored_flag(skip)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for upload in BUSY {
        let name = format!("every_rule_is_enough::{upload}");
        trials.push(Trial::test(name, move || {
            assert_eq!(attempt(upload, NONE), Ended::Compiled.to_string());
            Ok(())
        }));
    }
    trials.push(Trial::test("no_fixture_is_taken_for_an_attack", || {
        let right = [Ended::Compiled, Ended::Refused].map(|ended| ended.to_string());
        for fixture in uploads::fixtures() {
            let ended = attempt(&fixture, NONE);
            assert!(right.contains(&ended), "{fixture}: {ended}");
        }
        Ok(())
    }));
    let names = jail::rules().into_iter().map(|rule| rule.name);
    for missing in names.chain([ANSWERS[0]]) {
        trials.push(Trial::test(named("needed", missing), move || {
            let is_missed = |upload: &&str| attempt(upload, missing) == forbidden();
            assert!(BUSY.iter().any(is_missed), "nothing comes to use it");
            Ok(())
        }));
    }
    for Deed { name, rules, .. } in DEEDS {
        trials.push(Trial::test(name, move || {
            assert_eq!(attempt(name, NONE), RIGHT);
            Ok(())
        }));
        for missing in rules {
            let test = format!("{}::{name}", named("needed", missing));
            trials.push(Trial::test(test, move || {
                assert_eq!(attempt(name, missing), forbidden());
                Ok(())
            }));
        }
    }
    trials.push(Trial::test("every_rare_rule_has_a_deed", || {
        let names = jail::rare_rules().into_iter().map(|rule| rule.name);
        for name in names.chain([ANSWERS[1]]) {
            let is_used = DEEDS.iter().any(|deed| deed.rules.contains(&name));
            assert!(is_used, "{name}");
        }
        Ok(())
    }));
    trials
}

fn named(kind: &str, rule: &str) -> String {
    format!("{kind}::{}", rule.replace(' ', "_"))
}

/// Runs a helper with the work and without the rule, in a separate process.
fn attempt(work: &str, missing: &str) -> String {
    let output = Command::new("/proc/self/exe")
        .args([TESTBED, work, missing])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "the testbed failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let told = String::from_utf8(output.stdout).unwrap();
    told.trim().to_owned()
}

/// How a helper ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// With a report and an artifact.
    Compiled,
    /// With a report that refuses the upload.
    Refused,
    /// In the way that is expected of the deed.
    Rightly,
    /// Ended by its filter.
    Forbidden,
    Otherwise(String),
}

/// Printed for a deed that ended as expected.
const RIGHT: &str = "rightly";

fn forbidden() -> String {
    Ended::Forbidden.to_string()
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compiled => f.write_str("compiled"),
            Self::Refused => f.write_str("refused"),
            Self::Rightly => f.write_str(RIGHT),
            Self::Forbidden => f.write_str("forbidden"),
            Self::Otherwise(how) => write!(f, "otherwise: {how}"),
        }
    }
}

fn deed(name: &str) -> Option<Deed> {
    DEEDS.into_iter().find(|deed| deed.name == name)
}

/// Starts the helper, and returns how it ends.
fn run(work: &str, missing: &str) -> Ended {
    let deed = deed(work);
    let upload = match deed {
        Some(_) => Vec::new(),
        None => uploads::read(work),
    };
    let mut testbed = Testbed::prepare();
    let input = [Task::Compile.front(false, upload.len() as u64), upload].concat();
    let helper = testbed.start(&format!("{work} {missing}"), &input, CPU_SECONDS);
    let status = helper.wait();
    let (artifact, report) = (helper.artifact(), helper.report());
    testbed.remove();
    if status.terminating_signal() == Some(libc::SIGSYS) {
        return Ended::Forbidden;
    }
    let result = CompileReport::parse(&report).map(|report| report.result);
    let told = || Ended::Otherwise(format!("{status:?}, {result:?}"));
    let is_right = match deed.map(|deed| deed.end) {
        None => {
            return match &result {
                Ok(Ok(compiled)) if compiled.code_bytes == artifact.len() as u64 => Ended::Compiled,
                Ok(Err(_)) if artifact.is_empty() => Ended::Refused,
                _ => told(),
            };
        }
        Some(End::Told(what)) => {
            let said = matches!(&result, Ok(Err(refusal)) if refusal.message.contains(what));
            status.exit_status() == Some(0) && said && artifact.is_empty()
        }
        Some(End::Signal(signals)) => {
            let signal = status.terminating_signal();
            signal.is_some_and(|signal| signals.contains(&signal)) && report.is_empty()
        }
        Some(End::Code(code)) => status.exit_status() == Some(code) && report.is_empty(),
    };
    if is_right { Ended::Rightly } else { told() }
}

/// Runs the helper; only the filter differs, and for a deed the work.
fn play(part: &str) -> ExitCode {
    let (work, missing) = part.split_once(' ').unwrap();
    let mut rules = jail::rules();
    rules.extend(jail::rare_rules());
    rules.retain(|rule| rule.name != missing);
    let answers: Vec<_> = ANSWERS.into_iter().zip(REFUSED).collect();
    let answers = answers.into_iter().filter(|(name, _)| *name != missing);
    let answers: Vec<_> = answers.map(|(_, answer)| answer).collect();
    let filter = Filter::compile(&rules, &answers).map_err(|error| error.to_string());
    helper::run(filter, deed(work).map_or(perform, |deed| deed.act))
}
