//! Warm-up requests: a function answers them before it is frozen, for the state that they leave
//! behind. Data that is read, compiled or cached at the first request is then present for all.
//!
//! The responses are discarded. A status from 300 to 499 is noted in the function's log. Draws
//! during a warm-up count as drawn before the freeze.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use faasw_abi::outcome::Outcome;
use faasw_abi::wire::RequestHead;

use super::{Entry, Ready};
use crate::failure::{Failure, RunEnd};
use crate::platform::{LogStream, Platform};

impl<P: Platform> Ready<P> {
    /// Runs a warm-up request with this body. The function is ready for another request afterwards.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the function is a command, which answers one request only. Also if
    /// it traps, exits, or answers with an incomplete response or a status of 500 or more. It must
    /// not be used any more then.
    pub fn warm_up(&mut self, request: RequestHead, body: Vec<u8>) -> Result<(), Failure> {
        let Entry::Http(handle) = self.entry.clone() else {
            return Err(Failure::new(
                Outcome::LoadFailed,
                "a command ends with the request that it answers, so nothing can warm it up",
            ));
        };
        let described = describe(&request);
        let state = self.store.data_mut();
        state.may_enter = false;
        state.invocation.begin(&request);
        state.platform.begin_synthetic(body);
        let called = self.call_handler(&handle, request);
        // A function that has exited cannot be entered again.
        let concluded = match called {
            Err(error) if matches!(error.downcast_ref(), Some(RunEnd::Exit(0))) => {
                Err(Failure::exit(0))
            }
            called => self.ended_well(called).and_then(|()| self.conclude()),
        };
        let platform = &mut self.store.data_mut().platform;
        let status = platform.end_synthetic();
        if let (Ok(()), Some(status @ 300..500)) = (&concluded, status) {
            let line =
                format!("the warm-up request {described} was answered with status {status}\n");
            platform.log(LogStream::Err, line.as_bytes());
        }
        match (concluded, status) {
            (Ok(()), Some(status @ 500..)) => Err(Failure::new(
                Outcome::FunctionError,
                format!("status {status}"),
            )),
            (concluded, _) => concluded,
        }
    }
}

/// Returns the method and the path of a request.
fn describe(request: &RequestHead) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes);
    let (method, path) = (text(&request.method), text(&request.path_and_query));
    format!("{method} {path}")
}
