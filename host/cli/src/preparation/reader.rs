//! The process that reads changed scripts for `up --watch`.
//!
//! A serving node starts no process and must not parse foreign code. So `up` starts this process
//! before it confines itself, and sends it the list of the scripts. Later it sends the index of
//! each script that has changed, so a node that was taken over cannot have other files read. This
//! process starts the one that parses, and pip. It ends with the node.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{
            ffi::{OsStrExt as _, OsStringExt as _},
            net::UnixStream,
            process::CommandExt as _,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use faasw::script::SCRIPT_MAX;
use serde::{Deserialize, Serialize};

use super::{Reading, read};
use crate::exit::Exit;

/// The hidden command.
const COMMAND: &str = "read-scripts";

/// Maximum bytes of a message without its bundle.
const HEADER_MAX: usize = 32 << 20;

/// A script of the list that the process receives first.
#[derive(Debug, Serialize, Deserialize)]
struct Script {
    path: Vec<u8>,
    entry: Option<String>,
}

/// The result of a reading, without the bundle.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    /// The code, message and hint of a failure.
    failure: Option<(u8, String, Option<String>)>,
    notes: Vec<String>,
    inputs: Option<Vec<Vec<u8>>>,
}

/// The node's handle of the process. It ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct ScriptReader {
    process: Arc<Mutex<Process>>,
}

#[derive(Debug)]
struct Process {
    stream: UnixStream,
    child: Child,
    scripts: Vec<Script>,
}

impl ScriptReader {
    /// Starts the process, which reads only these paths, each with its entry. This process must not
    /// have confined itself yet.
    ///
    /// # Errors
    /// Returns a failure if the process cannot be started.
    pub fn start<'a>(
        scripts: impl Iterator<Item = (&'a Path, Option<&'a str>)>,
    ) -> Result<Self, Exit> {
        let failed = |error: io::Error| {
            Exit::failure(format_args!(
                "the process that reads changed scripts cannot be started: {error}"
            ))
        };
        let script = |(path, entry): (&Path, Option<&str>)| Script {
            path: path.as_os_str().as_bytes().to_owned(),
            entry: entry.map(ToOwned::to_owned),
        };
        let scripts: Vec<Script> = scripts.map(script).collect();
        let list = serde_json::to_vec(&scripts).map_err(|error| failed(error.into()))?;
        let (mut stream, theirs) = UnixStream::pair().map_err(failed)?;
        let child = Command::new("/proc/self/exe")
            .arg0("faasw-reader")
            .arg(COMMAND)
            .stdin(OwnedFd::from(theirs))
            .spawn()
            .map_err(failed)?;
        send(&mut stream, &list).map_err(failed)?;
        let process = Arc::new(Mutex::new(Process {
            stream,
            child,
            scripts,
        }));
        Ok(Self { process })
    }

    /// Has the process read a script of its list. This blocks.
    pub fn read(&self, path: &Path) -> Reading {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.read(path).unwrap_or_else(|error| {
            Reading::failed(Exit::failure(format_args!(
                "the process that reads changed scripts has ended: {error}; start the node again"
            )))
        })
    }
}

impl Process {
    fn read(&mut self, path: &Path) -> io::Result<Reading> {
        let path = path.as_os_str().as_bytes();
        let index = self.scripts.iter().position(|script| script.path == path);
        let index = index.ok_or(io::ErrorKind::NotFound)? as u64;
        send(&mut self.stream, &index.to_le_bytes())?;
        let header = receive(&mut self.stream, HEADER_MAX)?;
        let bundle = receive(&mut self.stream, SCRIPT_MAX)?;
        let Answer {
            failure,
            notes,
            inputs,
        } = serde_json::from_slice(&header)?;
        let result = match failure {
            None => Ok(Bytes::from(bundle)),
            Some((code, message, hint)) => Err(Exit {
                code,
                message: Some(message),
                hint,
            }),
        };
        let paths = |inputs: Vec<Vec<u8>>| inputs.into_iter().map(path_of).collect();
        Ok(Reading {
            result,
            notes,
            inputs: inputs.map(paths),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process ends at the end of its input. A serving node must not send signals, and its
        // children become those of the system's first process.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let _ = self.child.try_wait();
    }
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

/// Runs the process, until the node closes its end of standard input.
pub fn run() -> ExitCode {
    // Ctrl-C in a terminal is for the node only.
    let _ = rustix::process::setsid();
    // A reading may last when the node ends.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let _ = rustix::thread::set_name(c"faasw-reader");
    let Ok(stream) = io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    let mut stream = UnixStream::from(stream);
    let list = receive(&mut stream, HEADER_MAX).ok();
    let scripts = list.and_then(|list| serde_json::from_slice::<Vec<Script>>(&list).ok());
    let Some(scripts) = scripts else {
        return ExitCode::FAILURE;
    };
    while let Ok(request) = receive(&mut stream, size_of::<u64>()) {
        let index = <[u8; 8]>::try_from(request).ok().map(u64::from_le_bytes);
        let index = index.and_then(|index| usize::try_from(index).ok());
        let Some(script) = index.and_then(|index| scripts.get(index)) else {
            return ExitCode::FAILURE;
        };
        if answer(&mut stream, script).is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

fn answer(stream: &mut UnixStream, script: &Script) -> io::Result<()> {
    let Reading {
        result,
        notes,
        inputs,
    } = read(&path_of(script.path.clone()), script.entry.as_deref());
    let (failure, bundle) = match result {
        Ok(bundle) => (None, bundle),
        Err(exit) => {
            let message = exit.message.unwrap_or_default();
            (Some((exit.code, message, exit.hint)), Bytes::new())
        }
    };
    let bytes = |path: PathBuf| path.into_os_string().into_vec();
    let header = serde_json::to_vec(&Answer {
        failure,
        notes,
        inputs: inputs.map(|inputs| inputs.into_iter().map(bytes).collect()),
    })?;
    send(stream, &header)?;
    send(stream, &bundle)
}

/// Sends bytes with their length in front.
fn send(stream: &mut impl Write, content: &[u8]) -> io::Result<()> {
    stream.write_all(&(content.len() as u64).to_le_bytes())?;
    stream.write_all(content)
}

/// Receives bytes with their length in front.
fn receive(stream: &mut impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > most as u64 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut content = Vec::new();
    stream.take(length).read_to_end(&mut content)?;
    if content.len() as u64 == length {
        Ok(content)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_a_length_in_front() {
        let mut stream = Vec::new();
        send(&mut stream, b"ab").unwrap();
        send(&mut stream, b"").unwrap();
        let mut input = &stream[..];
        assert_eq!(receive(&mut input, 2).unwrap(), b"ab");
        assert_eq!(receive(&mut input, 2).unwrap(), b"");
        assert!(receive(&mut input, 2).is_err());
        assert!(receive(&mut &stream[..], 1).is_err());
        assert!(receive(&mut &stream[..9], 2).is_err());
    }
}
