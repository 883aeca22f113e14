//! Results of commands: exit codes, and errors that state what to do next.

use std::{fmt::Display, path::Path};

use faasw::{PlatformError, PoolStartError, StartError};
use faasw_client::{ClientError, FunctionName};

/// The section of the help about exit codes.
pub const HELP: &str = "\
Exit codes:
  0   success
  1   failure; the message has the reason
  2   invalid command line
  3   no node runs on the data directory
  4   this host cannot run microVMs
  5   share find: no such entry
  22  invoke: the response has a status of 400 or more";

const FAILURE: u8 = 1;
const USAGE: u8 = 2;
const NOT_RUNNING: u8 = 3;
const NO_MICROVMS: u8 = 4;
const NOT_SHARED: u8 = 5;
/// Equal to curl's exit code with `--fail`.
const BAD_STATUS: u8 = 22;

/// The reason why a command fails.
#[derive(Debug)]
pub struct Exit {
    pub code: u8,
    pub message: Option<String>,
    /// A hint at what the user can do next.
    pub hint: Option<String>,
}

impl Exit {
    pub fn failure(message: impl Display) -> Self {
        Self {
            code: FAILURE,
            message: Some(message.to_string()),
            hint: None,
        }
    }

    fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    pub fn usage(message: impl Display) -> Self {
        Self::failure(message).with_code(USAGE)
    }

    /// Returns the failure that a file or folder cannot be read.
    pub fn unreadable(path: &Path, error: impl Display) -> Self {
        Self::failure(format_args!("{} cannot be read: {error}", path.display()))
    }

    /// Returns the failure that a file cannot be written.
    pub fn unwritable(path: &Path, error: impl Display) -> Self {
        Self::failure(format_args!(
            "{} cannot be written: {error}",
            path.display()
        ))
    }

    /// Returns the failure of an invocation whose response has a bad status. The command has
    /// printed the response already.
    pub fn bad_status() -> Self {
        Self::failure("").with_code(BAD_STATUS).silent()
    }

    /// Returns the failure for an entry that a store does not have. Callers can work without it.
    pub fn not_shared(message: impl Display) -> Self {
        Self::failure(message).with_code(NOT_SHARED)
    }

    /// Keeps only the exit code, because the command has printed the rest.
    pub fn silent(self) -> Self {
        Self {
            code: self.code,
            message: None,
            hint: None,
        }
    }

    /// Prefixes the message with the function and the failed operation.
    pub fn of(mut self, name: &FunctionName, what: &str) -> Self {
        self.message = self
            .message
            .map(|message| format!("{name} {what}: {message}"));
        self
    }

    pub fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }
}

impl Display for Exit {
    /// Writes the message without the hint.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message.as_deref().unwrap_or_default())
    }
}

impl From<StartError> for Exit {
    fn from(error: StartError) -> Self {
        let exit = Self::failure(&error);
        match error {
            StartError::Pool(
                PoolStartError::KvmMissing
                | PoolStartError::KvmPermission
                | PoolStartError::KvmBroken(_)
                | PoolStartError::KvmLacks(_)
                | PoolStartError::IsaMissing(_)
                | PoolStartError::Sandbox(PlatformError::Jail { .. }),
            ) => exit
                .with_code(NO_MICROVMS)
                .hint("`faasw doctor` reports what this host supports and lacks"),
            StartError::Listen { error, .. } if error.kind() == std::io::ErrorKind::AddrInUse => {
                exit.hint(
                    "stop the program that listens there, or choose another address: \
                     --listen 127.0.0.1:0 takes any free port",
                )
            }
            StartError::Locked { .. } => {
                exit.hint("stop that node, or choose another directory with --data-dir")
            }
            _ => exit,
        }
    }
}

impl From<ClientError> for Exit {
    fn from(error: ClientError) -> Self {
        let exit = Self::failure(&error);
        match error {
            ClientError::NotRunning(data_dir) => exit.with_code(NOT_RUNNING).hint(format_args!(
                "start one with: faasw serve --data-dir {}\n  `faasw up` prints the --data-dir of \
                 its node",
                data_dir.display()
            )),
            ClientError::Refused { status, .. } if status == http::StatusCode::NOT_FOUND => exit
                .hint("`faasw ls` lists the functions, `faasw inspect NAME` the versions of one"),
            _ => exit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_cannot_run_microvms_has_its_own_exit_code() {
        for (error, code) in [
            (PoolStartError::KvmMissing, NO_MICROVMS),
            (PoolStartError::KvmPermission, NO_MICROVMS),
            (PoolStartError::KvmLacks("x"), NO_MICROVMS),
            (PoolStartError::IsaMissing("x"), NO_MICROVMS),
            (
                PoolStartError::Spawner(std::io::ErrorKind::NotFound.into()),
                FAILURE,
            ),
        ] {
            let exit = Exit::from(StartError::Pool(error));
            assert!(exit.message.is_some());
            assert_eq!(exit.code, code, "{exit}");
            // `doctor` ends in this way, because its report has the reason.
            let silent = exit.silent();
            assert_eq!(
                (silent.code, silent.message, silent.hint),
                (code, None, None)
            );
        }
    }
}
