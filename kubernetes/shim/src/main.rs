//! `containerd-shim-faasw-v1`, which acts as `runc` if it is called by that name.

use std::{env, ffi::OsStr, path::Path, process::ExitCode};

use faasw_common::text::Lines;
use faasw_shim::{
    groups, host, runc,
    sharing::{view, work},
    start,
};

fn main() -> ExitCode {
    let mut arguments = env::args_os();
    let called = arguments.next().unwrap_or_default();
    let arguments: Vec<_> = arguments.collect();
    let name = Path::new(&called).file_name().and_then(OsStr::to_str);
    let name = name.unwrap_or_default();
    let done = match name {
        host::TRIAL_NAME => host::try_namespaces(),
        groups::HOOK_NAME => {
            // The delegation is optional: the container starts even if it fails.
            if let Err(error) = groups::delegate(&arguments) {
                eprintln!("faasw: {}", Lines(&error));
            }
            Ok(())
        }
        view::VIEW => view::enter(&arguments),
        work::STARTER_NAME => {
            work::spawn_worker();
            Ok(())
        }
        work::WORKER_NAME => {
            work::run();
            Ok(())
        }
        "runc" => runc::run(&arguments),
        _ => start::run(&arguments),
    };
    // On success, `view`, `runc` and `start` have become another program and do not return.
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("faasw: {}", Lines(&error));
            if name == view::VIEW {
                view::NOT_ENTERED.into()
            } else {
                ExitCode::FAILURE
            }
        }
    }
}
