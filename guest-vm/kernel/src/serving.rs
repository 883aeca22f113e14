//! The only request of a guest, and its end: the guest reports the outcome to the node, and runs no
//! further code.

use core::sync::atomic::{Ordering, fence};

use faasw_abi::channel::Channel;
use faasw_abi::doorbell::Doorbell;
use faasw_abi::outcome::Outcome;
use faasw_abi::wire::RequestHead;
use faasw_runtime::failure::Failure;
use faasw_runtime::function::Ready;
use faasw_runtime::platform::Platform as _;

use crate::host::{self, publish, read_host_word};
use crate::instance::Instance;

/// Serves the only request of this instance, and ends the guest.
pub fn serve(mut ready: Ready<Instance>) -> ! {
    let head = ready.platform_mut().head(Channel::INVOCATION);
    let request = match RequestHead::decode(&head) {
        Ok(request) => request,
        Err(error) => host::fatal(format_args!("the request head is invalid: {error}")),
    };
    ready.platform_mut().begin();
    let answered = ready.handle(request);
    conclude(&ready, &answered)
}

/// Runs a command up to its func-entry point. An instance that continues from there has a request,
/// which this run answers.
pub fn run(mut ready: Ready<Instance>) -> ! {
    let answered = ready.run_to_entry();
    conclude(&ready, &answered)
}

/// Reports the outcome of the request, and ends the guest.
fn conclude(ready: &Ready<Instance>, answered: &Result<(), Failure>) -> ! {
    let took = ready.platform().served_for();
    let outcome = match answered {
        Ok(()) => {
            publish!(report_len, 0);
            Outcome::Response
        }
        Err(failure) => {
            explain(failure);
            failure.outcome
        }
    };
    publish!(exec_nanoseconds, took);
    publish!(outcome, outcome as u32);
    // After this fence, either a host that sets `tell_end` sees the outcome, or the guest sees the
    // set word.
    fence(Ordering::SeqCst);
    if read_host_word!(tell_end) != 0 {
        host::ring_progress();
    }
    loop {
        host::ring(Doorbell::Done);
    }
}

/// Ends a guest whose function did not become ready.
pub fn refuse(failure: &Failure) -> ! {
    explain(failure);
    publish!(outcome, failure.outcome as u32);
    loop {
        host::ring(Doorbell::Done);
    }
}

/// Writes all parts of a failure but its outcome, which must become visible last.
fn explain(failure: &Failure) {
    let report = host::write_report(format_args!("{}", failure.report));
    publish!(trap, failure.trap.map_or(0, |trap| trap as u32));
    publish!(exit_code, failure.exit_code);
    publish!(report_len, report);
}
