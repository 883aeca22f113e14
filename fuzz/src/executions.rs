//! Runs a target: on one input, or as often as its test states.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use fastrand::Rng;

use crate::Target;
use crate::meter::with_peak_memory;
use crate::mutate::mutate;

/// The longest that one input may take; most take microseconds.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Runs a target on one input. Returns whether a good side could have sent it.
///
/// # Panics
/// Panics if the target's rules are broken, or if the run takes too much memory or time.
pub fn run_once(target: &Target, input: &[u8]) -> bool {
    let began = Instant::now();
    let (is_good, most) = with_peak_memory(|| (target.read)(input));
    let allowed = target.memory + target.per_byte * input.len();
    assert!(
        most <= allowed,
        "{most} bytes of memory for {} bytes of input, more than {allowed}",
        input.len()
    );
    let took = began.elapsed();
    assert!(took < TIME_MAX, "it took {took:?}");
    is_good
}

/// Writes the input to a file if the target panics on it.
struct FailureReport<'a> {
    target: &'a Target,
    folder: &'a Path,
    input: Vec<u8>,
}

impl Drop for FailureReport<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let path = self.folder.join(format!("{}.failed", self.target.name));
            let kept = fs::write(&path, &self.input);
            eprintln!("again with FAASW_FUZZ_INPUT={} ({kept:?})", path.display());
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

/// Runs a target on its seeds, and then on random mutations of them. The number of executions is
/// that of `FAASW_FUZZ_EXECUTIONS`, or else the target's. If a run fails, its input is written to
/// `folder`.
///
/// # Panics
/// Panics if a rule is broken, or if a seed is not what a good side sends.
pub fn run(target: &Target, folder: &Path) {
    let mut failing = FailureReport {
        target,
        folder,
        input: Vec::new(),
    };
    if let Ok(path) = env::var("FAASW_FUZZ_INPUT") {
        let read = fs::read(&path);
        assert!(read.is_ok(), "{path}: {read:?}");
        failing.input = read.unwrap_or_default();
        run_once(target, &failing.input);
        return;
    }
    let seeds = seeds(target);
    assert!(!seeds.is_empty(), "it has seeds");
    for (path, seed) in &seeds {
        failing.input.clone_from(seed);
        assert!(run_once(target, seed), "{} is good", path.display());
    }
    let origin = number("FAASW_TEST_SEED").unwrap_or_else(|| fastrand::u64(..));
    let executions = number("FAASW_FUZZ_EXECUTIONS").unwrap_or(target.executions);
    println!(
        "{}: {executions} executions, again with FAASW_TEST_SEED={origin}",
        target.name
    );
    let mut random = Rng::with_seed(origin);
    let mut good = 0;
    for _ in 0..executions {
        let mut pick = || {
            let seed = seeds.get(random.usize(..seeds.len()));
            seed.map_or(&[][..], |(_, seed)| seed.as_slice())
        };
        let (seed, other) = (pick(), pick());
        failing.input.clear();
        failing.input.extend_from_slice(seed);
        mutate(&mut failing.input, other, &mut random);
        good += u64::from(run_once(target, &failing.input));
    }
    println!("{}: {good} of them good", target.name);
}

/// Returns the target's seeds, in order of their names.
fn seeds(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let entries = fs::read_dir(folder.join(target.name));
    let mut seeds: Vec<_> = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.path(), fs::read(entry.path()).ok()?)))
        .collect();
    seeds.sort();
    seeds
}
