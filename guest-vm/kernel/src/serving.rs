//! The one request of a guest, and how it ends: the node is told what came of it, and nothing
//! runs any more.

use core::sync::atomic::{Ordering, fence};

use faasw_abi::channel::Channel;
use faasw_abi::doorbell::Doorbell;
use faasw_abi::outcome::Outcome;
use faasw_abi::wire::RequestHead;
use faasw_runtime::failure::Failure;
use faasw_runtime::function::Ready;
use faasw_runtime::platform::Platform as _;

use crate::host::{self, host_says, publish};
use crate::instance::Instance;

/// The one request of this instance, and the end.
pub fn serve(mut ready: Ready<Instance>) -> ! {
    let head = ready.platform_mut().head(Channel::INVOCATION);
    let request = match RequestHead::decode(&head) {
        Ok(request) => request,
        Err(error) => host::fatal(format_args!("the request head: {error}")),
    };
    ready.platform_mut().begin();
    let answered = ready.handle(request);
    conclude(&ready, &answered)
}

/// A command up to its func-entry point; what goes on from there has a request, which that is.
pub fn run(mut ready: Ready<Instance>) -> ! {
    let answered = ready.run_ahead();
    conclude(&ready, &answered)
}

/// What came of the one request.
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
    // A host that asks now sees the outcome, or is seen to ask.
    fence(Ordering::SeqCst);
    if host_says!(tell_end) != 0 {
        host::ring_progress();
    }
    loop {
        host::ring(Doorbell::Done);
    }
}

/// Ends a guest whose function never got ready.
pub fn refuse(failure: &Failure) -> ! {
    explain(failure);
    publish!(outcome, failure.outcome as u32);
    loop {
        host::ring(Doorbell::Done);
    }
}

/// Says all of a failure but its outcome, which is to be seen last.
fn explain(failure: &Failure) {
    let report = host::write_report(format_args!("{}", failure.report));
    publish!(trap, failure.trap.map_or(0, |trap| trap as u32));
    publish!(exit_code, failure.exit_code);
    publish!(report_len, report);
}
