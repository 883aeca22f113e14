//! How a command answers a request: by running from its start to its end.

use core::mem;

use faasw_abi::outcome::Outcome;
use faasw_abi::wire::RequestHead;
use wasmtime::{Result, Store};

use super::{CliEntry, Ready};
use crate::failure::{Failure, RunEnd};
use crate::platform::Platform;
use crate::state::{State, Stdio};

/// Runs a component's command.
pub(super) fn run_cli<P: Platform>(run: &CliEntry, store: &mut Store<State<P>>) -> Result<()> {
    match run.call(store, ())? {
        (Ok(()),) => Ok(()),
        (Err(()),) => Err(RunEnd::Exit(1).into()),
    }
}

impl<P: Platform> Ready<P> {
    /// Answers the request by a command, which `run` calls.
    pub(super) fn handle_command(
        &mut self,
        request: &RequestHead,
        run: impl FnOnce(&mut Store<State<P>>) -> Result<()>,
    ) -> Result<(), Failure> {
        self.store.data_mut().begin_command(request);
        let ran = run(&mut self.store);
        let ended = self.ended_well(ran);
        self.conclude_command(ended)
    }

    /// Completes the response of a command that has `ended`. If the command has reported its
    /// failure to the client by itself, the exit code adds nothing for the client. That response is
    /// complete, and the code is for the function's owner.
    pub(super) fn conclude_command(&mut self, ended: Result<(), Failure>) -> Result<(), Failure> {
        match &ended {
            Ok(()) => self.finish_command(),
            Err(failure) if failure.outcome == Outcome::Exit && self.has_reported_failure() => {
                self.finish_command()?;
                ended
            }
            Err(_) => ended,
        }
    }

    fn has_reported_failure(&self) -> bool {
        match &self.store.data().stdio {
            Stdio::Command(output) => output.reports_failure(),
            Stdio::Log => false,
        }
    }

    /// Ends the response of a command.
    fn finish_command(&mut self) -> Result<(), Failure> {
        let state = self.store.data_mut();
        let Stdio::Command(output) = mem::replace(&mut state.stdio, Stdio::Log) else {
            return Err(Failure::new(
                Outcome::GuestFailed,
                "the command has answered a request already",
            ));
        };
        output.finish(state.invocation.is_head, &mut state.platform)
    }
}
