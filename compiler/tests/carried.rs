//! A helper whose program is not in its own file before the first one is started.
//!
//! This program is its own helper, in a cell as the spawner makes it, by a process of its own with
//! one thread.
//!
//! Where the host allows no namespaces every test here says so and counts as ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "support/jail.rs"]
mod jail;

use std::{
    fs::{self, File},
    os::fd::FromRawFd as _,
    process::Command,
};

use faasw_compiler::protocol::contract::REPORT_FD;
use libtest_mimic::{Arguments, Trial};
use rustix::fs::{SealFlags, fcntl_get_seals};

use jail::{Inmate, Jail};

/// The word that has this program make cells; after it comes what for.
const JAIL: &str = "--jail";
/// What a helper says that runs.
const RAN: &[u8] = b"it runs";
/// What one exits with that could not be started.
const NOT_STARTED: i32 = 127;

/// A test's name, and what it does with cells.
type Scene = (&'static str, fn(Jail));

/// Each in a process of its own.
const SCENES: [Scene; 3] = [
    (
        "the_first_has_its_program_put_where_it_is_started_from",
        one_after_the_other,
    ),
    ("two_at_once_need_not_wait_for_each_other", at_once),
    (
        "what_cannot_be_put_there_whole_is_not_started_and_the_next_one_tries_again",
        cut_off,
    ),
];

fn main() {
    if jail::part().is_some() {
        // SAFETY: it was started with this descriptor, which is nobody else's.
        let report = unsafe { File::from_raw_fd(REPORT_FD) };
        std::os::unix::fs::FileExt::write_all_at(&report, RAN, 0).unwrap();
        return;
    }
    let words: Vec<String> = std::env::args().collect();
    if let [_, word, name] = words.as_slice()
        && word == JAIL
    {
        let (_, scene) = SCENES.iter().find(|(scene, _)| scene == name).unwrap();
        return scene(Jail::prepare());
    }
    let skip = !jail::is_possible();
    let trials = SCENES.map(|(name, _)| {
        let trial = Trial::test(name, move || {
            let jailed = Command::new("/proc/self/exe").args([JAIL, name]).output();
            let jailed = jailed.unwrap();
            assert!(jailed.status.success(), "{jailed:?}");
            Ok(())
        });
        trial.with_ignored_flag(skip)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit();
}

fn start(jail: &mut Jail) -> Inmate {
    const CPU_SECONDS: u64 = 20;
    jail.start("helper", &[], CPU_SECONDS)
}

/// Waits until a helper has done what one does that runs.
fn assert_ran(helper: &Inmate) {
    let status = helper.wait();
    assert_eq!(
        (status.exit_status(), helper.report()),
        (Some(0), RAN.into())
    );
}

/// The program is in its place, and nobody changes it.
fn assert_sealed(jail: &Jail) {
    let all = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    assert_eq!(fcntl_get_seals(jail.program()).unwrap(), all);
    let file = File::from(jail.program().try_clone().unwrap());
    let mut content = vec![0; file.metadata().unwrap().len().try_into().unwrap()];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut content, 0).unwrap();
    assert!(content == fs::read("/proc/self/exe").unwrap());
}

fn one_after_the_other(mut jail: Jail) {
    jail.carry(0);
    for _ in 0..3 {
        assert_ran(&start(&mut jail));
        assert_sealed(&jail);
    }
    jail.remove();
}

fn at_once(mut jail: Jail) {
    jail.carry(0);
    let helpers = [(); 4].map(|()| start(&mut jail));
    helpers.iter().for_each(assert_ran);
    assert_sealed(&jail);
    jail.remove();
}

fn cut_off(mut jail: Jail) {
    jail.carry(1);
    for _ in 0..2 {
        let helper = start(&mut jail);
        assert_eq!(helper.wait().exit_status(), Some(NOT_STARTED));
        assert!(helper.report().is_empty());
        let seals = fcntl_get_seals(jail.program()).unwrap();
        assert_eq!(seals, SealFlags::empty());
    }
    jail.carry(0);
    assert_ran(&start(&mut jail));
    assert_sealed(&jail);
    jail.remove();
}
