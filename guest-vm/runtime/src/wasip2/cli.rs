//! `wasi:cli`: environment, exit, standard streams, and terminals (there are none).

use alloc::string::String;
use alloc::vec::Vec;

use wasmtime::Result;
use wasmtime::component::Resource;

use super::bindings::wasi::cli::{
    environment, exit, stderr, stdin, stdout, terminal_input, terminal_output, terminal_stderr,
    terminal_stdin, terminal_stdout,
};
use super::streams::{InputStream, OutputStream};
use crate::draws::Kind;
use crate::failure::RunEnd;
use crate::platform::Platform;
use crate::state::{State, Stdio};

/// Converts to UTF-8, as component strings require; CGI variables may hold arbitrary bytes of a
/// client.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl<P: Platform> environment::Host for State<P> {
    fn get_environment(&mut self) -> Result<Vec<(String, String)>> {
        self.draws
            .record(Kind::Environment, "wasi:cli/environment#get-environment", 0);
        Ok(self
            .environment
            .iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect())
    }

    fn get_arguments(&mut self) -> Result<Vec<String>> {
        self.draws
            .record(Kind::Environment, "wasi:cli/environment#get-arguments", 0);
        Ok(self
            .arguments
            .iter()
            .map(|argument| text(argument))
            .collect())
    }

    fn initial_cwd(&mut self) -> Result<Option<String>> {
        Ok(None)
    }
}

impl<P: Platform> exit::Host for State<P> {
    fn exit(&mut self, status: Result<(), ()>) -> Result<()> {
        Err(RunEnd::Exit(u32::from(status.is_err())).into())
    }

    fn exit_with_code(&mut self, status_code: u8) -> Result<()> {
        Err(RunEnd::Exit(status_code.into()).into())
    }
}

impl<P: Platform> stdin::Host for State<P> {
    fn get_stdin(&mut self) -> Result<Resource<InputStream>> {
        let stream = match self.stdio {
            // A command before its entry point has an input, because its request comes after that
            // point.
            Stdio::Log if !self.runs_to_entry => InputStream::Empty,
            Stdio::Log | Stdio::Command(_) => InputStream::Stdin,
        };
        Ok(self.table.push(stream)?)
    }
}

impl<P: Platform> stdout::Host for State<P> {
    fn get_stdout(&mut self) -> Result<Resource<OutputStream>> {
        Ok(self.table.push(OutputStream::Stdout)?)
    }
}

impl<P: Platform> stderr::Host for State<P> {
    fn get_stderr(&mut self) -> Result<Resource<OutputStream>> {
        Ok(self.table.push(OutputStream::Stderr)?)
    }
}

impl<P: Platform> terminal_input::Host for State<P> {}

impl<P: Platform> terminal_input::HostTerminalInput for State<P> {
    fn drop(&mut self, terminal: Resource<terminal_input::TerminalInput>) -> Result<()> {
        self.table.delete(terminal)?;
        Ok(())
    }
}

impl<P: Platform> terminal_output::Host for State<P> {}

impl<P: Platform> terminal_output::HostTerminalOutput for State<P> {
    fn drop(&mut self, terminal: Resource<terminal_output::TerminalOutput>) -> Result<()> {
        self.table.delete(terminal)?;
        Ok(())
    }
}

impl<P: Platform> terminal_stdin::Host for State<P> {
    fn get_terminal_stdin(&mut self) -> Result<Option<Resource<terminal_input::TerminalInput>>> {
        Ok(None)
    }
}

impl<P: Platform> terminal_stdout::Host for State<P> {
    fn get_terminal_stdout(&mut self) -> Result<Option<Resource<terminal_output::TerminalOutput>>> {
        Ok(None)
    }
}

impl<P: Platform> terminal_stderr::Host for State<P> {
    fn get_terminal_stderr(&mut self) -> Result<Option<Resource<terminal_output::TerminalOutput>>> {
        Ok(None)
    }
}
