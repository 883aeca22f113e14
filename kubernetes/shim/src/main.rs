//! `containerd-shim-faasw-v1`, which is `runc`, too, where it is called so.

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
    let name = Path::new(&called).file_name().unwrap_or(OsStr::new(""));
    let done = if name == host::TRIAL {
        host::try_namespaces()
    } else if name == groups::GIVING {
        // What cannot be given is done without: the container is started all the same.
        if let Err(error) = groups::give(&arguments) {
            eprintln!("faasw: {}", Lines(&error));
        }
        Ok(())
    } else if name == view::VIEW {
        view::enter(&arguments)
    } else if name == work::BEGINNING {
        work::leave_behind();
        Ok(())
    } else if name == work::WORKING {
        work::run();
        Ok(())
    } else if name == "runc" {
        runc::run(&arguments)
    } else {
        start::run(&arguments)
    };
    // Whoever has become another program does not come back.
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
