//! The func-entry point (Catalyzer §2.2 and §5): the position at which a function's own code
//! requests a freeze.
//!
//! A function may call it while it is instantiated or initialised. A command has no other time
//! before its request, and calls it from within its run. After the call this may be another
//! instance, whose request is present. For code that cannot call it, opening a configured file
//! takes its place.

use alloc::vec::Vec;
use core::mem;

use faasw_abi::channel::Channel;
use faasw_abi::outcome::Outcome;
use faasw_abi::wire::RequestHead;
use wasmtime::{Error, format_err};

use super::command::run_cli;
use super::{Entry, Ready};
use crate::cgi::Output;
use crate::failure::Failure;
use crate::files::Node;
use crate::platform::Platform;
use crate::state::{State, Stdio};

impl<P: Platform> State<P> {
    /// Freezes the function here, if it may still be frozen.
    ///
    /// # Errors
    /// Returns an error, which ends a command's run, if its request cannot be read.
    pub(crate) fn enter(&mut self) -> Result<(), Error> {
        if mem::replace(&mut self.may_enter, false) {
            self.platform.inner.freeze(&self.draws);
            if mem::replace(&mut self.runs_to_entry, false) {
                self.platform.end_synthetic();
                let head = self.platform.head(Channel::INVOCATION);
                let request = RequestHead::decode(&head)
                    .map_err(|error| format_err!("the request head is invalid: {error}"))?;
                self.draws.close();
                self.invocation.begin(&request);
                self.begin_command(&request);
                self.stdio = Stdio::Command(Output::default());
            }
        }
        Ok(())
    }

    /// Handles the opening of one of the function's files. If this file is the func-entry point,
    /// the function is frozen. A command then finds its environment in the file, in the format of a
    /// process's environment: each variable as `NAME=VALUE` with a NUL behind it, including those
    /// of its request.
    ///
    /// # Errors
    /// Returns the errors of [`State::enter`]. Also returns an error, which ends a command's run,
    /// if there is no memory for the variables: a part of them would look complete.
    pub(crate) fn opens(&mut self, node: Node) -> Result<(), Error> {
        let files = self.files.as_ref();
        if !files.is_some_and(|files| files.is_entry(node)) {
            return Ok(());
        }
        let gets_request = self.may_enter && self.runs_to_entry;
        self.enter()?;
        if gets_request {
            let variables = self.environment.iter();
            let variables: Vec<u8> = variables
                .flat_map(|(name, value)| [name, b"=".as_slice(), value, b"\0"].concat())
                .collect();
            let mut files = self.file_system();
            let written = files.set_size(node, 0);
            let written = written.and_then(|()| files.write(node, 0, &variables));
            if written.ok() != Some(variables.len()) {
                return Err(format_err!(
                    "the function has no memory left for its environment, which the file of its \
                     entry point is to hold"
                ));
            }
        }
        Ok(())
    }
}

impl<P: Platform> Ready<P> {
    /// Runs a command up to its func-entry point, where it is frozen; and from there, with a
    /// request, to its end. The platform has the complete response when this returns.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the function is no command, or ends before its func-entry point;
    /// after that point, the failures of [`Ready::handle`].
    pub fn run_to_entry(&mut self) -> Result<(), Failure> {
        let state = self.store.data_mut();
        state.stdio = Stdio::Log;
        state.runs_to_entry = true;
        // The command has no input yet, even if its request is present.
        state.platform.begin_synthetic(Vec::new());
        let ran = match self.entry.clone() {
            Entry::Http(_) => {
                return Err(Failure::new(
                    Outcome::LoadFailed,
                    "the function is not a command",
                ));
            }
            Entry::Cli(run) => run_cli(&run, &mut self.store),
            Entry::Cgi(start) => start.call(&mut self.store, ()),
        };
        let ended = self.ended_well(ran);
        if self.store.data().runs_to_entry {
            return Err(ended.err().unwrap_or_else(|| {
                let what = "the function ended before its entry point";
                Failure::new(Outcome::LoadFailed, what)
            }));
        }
        self.conclude_command(ended)
    }
}
