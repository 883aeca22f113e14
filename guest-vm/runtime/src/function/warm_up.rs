//! Requests that nobody made: a function answers them before it is frozen, for what they
//! leave behind. What is read, compiled or kept at the first request is there for all.
//!
//! The answers go nowhere; a status that says that nothing was found or done is told in the
//! function's log. What the function draws meanwhile counts as drawn before the freeze.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use faasw_abi::outcome::Outcome;
use faasw_abi::wire::RequestHead;

use super::{Entry, Ready};
use crate::failure::{Ended, Failure};
use crate::platform::{LogStream, Platform};

impl<P: Platform> Ready<P> {
    /// Has the function answer a request with this body, and be ready again.
    ///
    /// # Errors
    /// When it is a command, which answers one request; and when it traps, exits, or answers
    /// with no whole response or a status of 500 or more: it is not to be used any more then.
    pub fn warm_up(&mut self, request: RequestHead, body: Vec<u8>) -> Result<(), Failure> {
        let Entry::Http(handle) = self.entry.clone() else {
            return Err(Failure::new(
                Outcome::LoadFailed,
                "a command ends with the request that it answers, so nothing can warm it up",
            ));
        };
        let told = told(&request);
        let state = self.store.data_mut();
        state.may_enter = false;
        state.exchange.begin(&request);
        state.platform.make_up(body);
        let called = self.call_handler(&handle, request);
        // One that has exited cannot be entered again.
        let concluded = match called {
            Err(error) if matches!(error.downcast_ref(), Some(Ended::Exit(0))) => {
                Err(Failure::exit(0))
            }
            called => self.ended_well(called).and_then(|()| self.conclude()),
        };
        let platform = &mut self.store.data_mut().platform;
        let status = platform.end_made_up();
        if let (Ok(()), Some(status @ 300..500)) = (&concluded, status) {
            let line = format!("the warm-up request {told} was answered with status {status}\n");
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

/// Its method and its path.
fn told(request: &RequestHead) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes);
    let (method, path) = (text(&request.method), text(&request.path_and_query));
    format!("{method} {path}")
}
