//! Suites that list their tests themselves. What cannot be tried here counts as ignored, and says
//! so.

use libtest_mimic::{Arguments, Trial};

/// A test and its name.
pub type Test = (&'static str, fn());

/// Tests, and what is not there that they need, if anything.
pub type Group<'a> = (&'a [Test], Option<&'a str>);

/// All of these.
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

/// Lists tests by their functions, which are `async`.
#[macro_export]
macro_rules! async_tests {
    ($($name:path),* $(,)?) => {
        &[$((stringify!($name), (|| $crate::common::trials::on_runtime($name())) as fn())),*]
    };
}
