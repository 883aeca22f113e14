//! Test suites that list their tests themselves. Tests that cannot run here are ignored, with a
//! notice.

use libtest_mimic::{Arguments, Trial};

/// A test and its name.
pub type Test = (&'static str, fn());

/// Tests, and the reason why they cannot run here, if there is one.
pub type Group<'a> = (&'a [Test], Option<&'a str>);

/// Makes one list of these groups. Tests that cannot run are ignored.
pub fn trials<'a>(
    arguments: &Arguments,
    groups: impl IntoIterator<Item = Group<'a>>,
) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (tests, missing) in groups {
        for (name, test) in tests {
            if let Some(why) = missing
                && !arguments.list
            {
                eprintln!("SKIPPED ({why}): {name}");
            }
            let test = *test;
            let run = move || {
                test();
                Ok(())
            };
            trials.push(Trial::test(*name, run).with_ignored_flag(missing.is_some()));
        }
    }
    trials
}

/// Runs a test to its end.
pub fn on_runtime(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(test);
}

/// Lists `async` tests by their functions.
#[macro_export]
macro_rules! async_tests {
    ($($name:path),* $(,)?) => {
        &[$((stringify!($name), (|| $crate::common::trials::on_runtime($name())) as fn())),*]
    };
}
