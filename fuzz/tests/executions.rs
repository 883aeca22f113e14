//! Each fuzz target for a stated number of executions; see the documentation of the crate.

use std::path::Path;

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
                faasw_fuzz::run(&faasw_fuzz::targets::$name::TARGET, folder);
            }
        )*

        #[test]
        fn every_target_is_run() {
            let run = [$(stringify!($name)),*];
            for target in faasw_fuzz::targets::ALL {
                assert!(run.contains(&target.name), "{}", target.name);
            }
        }
    };
}

targets!(
    artifact,
    compile_report,
    egress,
    export,
    files,
    fri,
    image,
    log,
    mailbox,
    response,
    script,
    sandbox_words,
    state,
    store,
    wire,
    working_set,
);
