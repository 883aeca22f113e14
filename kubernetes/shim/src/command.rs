//! Parses the relevant parts of a runc command line, as runc's shim writes it.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

/// Options before the command that take a value.
const WITH_VALUES: &str = "root log log-format criu rootless rootless-cg";

/// Options of `create`, `run` and `exec` that take a value.
const WITH_VALUES_BEHIND: &str = "bundle b console-socket pid-file preserve-fds process p cwd \
    env e user u cap c process-label apparmor";

/// All commands of runc.
const COMMANDS: &str = "checkpoint create delete events exec features help h init kill list pause \
    ps restore resume run spec start state update";

/// A parsed runc command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// The command; `None` if there is none, as with `--version`.
    pub name: Option<&'static str>,
    /// The folder of runc's state.
    pub root: Option<PathBuf>,
    /// The file to which errors are written.
    pub log: Option<PathBuf>,
    /// The container's bundle folder.
    pub bundle: Option<PathBuf>,
    /// The file that describes the process to execute.
    pub process: Option<PathBuf>,
    /// The container's id.
    pub id: Option<OsString>,
    /// Whether systemd makes the control groups.
    pub has_systemd: bool,
}

impl Command {
    /// Parses a command line.
    ///
    /// # Errors
    /// Returns a message if the command is unknown or an option has no value. Such a command line
    /// is not passed on to runc, because it might start a container.
    pub fn read(arguments: &[OsString]) -> Result<Self, String> {
        let mut command = Self::default();
        let mut words = Words::new(arguments, WITH_VALUES);
        loop {
            match words.next()? {
                None => return Ok(command),
                Some(Word::Option("root", value)) => command.root = value.map(PathBuf::from),
                Some(Word::Option("log", value)) => command.log = value.map(PathBuf::from),
                Some(Word::Option("systemd-cgroup", _)) => command.has_systemd = true,
                Some(Word::Option(..)) => {}
                Some(Word::Other(name)) => {
                    let known = COMMANDS.split(' ').find(|known| name == *known);
                    let unknown = || format!("unknown command of runc: {}", name.display());
                    command.name = Some(known.ok_or_else(unknown)?);
                    break;
                }
            }
        }
        if !matches!(command.name, Some("create" | "run" | "exec" | "restore")) {
            return Ok(command);
        }
        words.values = WITH_VALUES_BEHIND;
        while let Some(word) = words.next()? {
            match word {
                Word::Option("bundle" | "b", value) => command.bundle = value.map(PathBuf::from),
                Word::Option("process" | "p", value) => command.process = value.map(PathBuf::from),
                Word::Option(..) => {}
                Word::Other(id) => {
                    command.id = Some(id.to_owned());
                    break;
                }
            }
        }
        Ok(command)
    }

    /// Returns the file in which runc keeps the container's state.
    #[must_use]
    pub fn state(&self) -> Option<PathBuf> {
        let (root, id) = (self.root.as_deref(), self.id.as_deref()?);
        let root = root.unwrap_or(Path::new("/run/runc"));
        Some(root.join(Path::new(id).file_name()?).join("state.json"))
    }
}

/// A word of a command line.
pub(crate) enum Word<'a> {
    /// An option without its dashes, and its value if it has one.
    Option(&'a str, Option<&'a OsStr>),
    /// A command or an argument.
    Other(&'a OsStr),
}

/// The words of a command line.
pub(crate) struct Words<'a> {
    rest: std::slice::Iter<'a, OsString>,
    /// The options that take a value, with spaces between.
    values: &'static str,
}

impl<'a> Words<'a> {
    /// Reads a command line, in which the options `values` (with spaces between) take a value.
    pub(crate) fn new(arguments: &'a [OsString], values: &'static str) -> Self {
        Self {
            rest: arguments.iter(),
            values,
        }
    }

    /// Returns the next word; `None` at the end.
    ///
    /// # Errors
    /// Returns a message if an option has no value.
    pub(crate) fn next(&mut self) -> Result<Option<Word<'a>>, String> {
        let Some(word) = self.rest.next() else {
            return Ok(None);
        };
        let text = match word.to_str() {
            Some(text) if text.starts_with('-') && text.len() > 1 => text.trim_start_matches('-'),
            _ => return Ok(Some(Word::Other(word))),
        };
        if let Some((name, value)) = text.split_once('=') {
            return Ok(Some(Word::Option(name, Some(OsStr::new(value)))));
        }
        if !self.values.split(' ').any(|name| name == text) {
            return Ok(Some(Word::Option(text, None)));
        }
        let value = self.rest.next();
        let value = value.ok_or_else(|| format!("the option {text} has no value"))?;
        Ok(Some(Word::Option(text, Some(value))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Command, String> {
        let arguments: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
        Command::read(&arguments)
    }

    #[test]
    fn command_lines_of_runcs_shim_are_parsed() {
        let command = read(
            "--root /run/containerd/runc/k8s.io --log /b/log.json --log-format json \
             --systemd-cgroup create --bundle /b --pid-file /b/init.pid \
             --console-socket /tmp/s --no-pivot c1",
        )
        .unwrap();
        assert_eq!(command.name, Some("create"));
        assert_eq!(command.bundle, Some("/b".into()));
        assert_eq!(command.log, Some("/b/log.json".into()));
        assert!(command.has_systemd);
        let state = "/run/containerd/runc/k8s.io/c1/state.json";
        assert_eq!(command.state(), Some(state.into()));
        let command = read("--root=/r exec --process /tmp/p --detach --pid-file /f c1").unwrap();
        assert_eq!(command.process, Some("/tmp/p".into()));
        assert_eq!(
            (command.name, command.id),
            (Some("exec"), Some("c1".into()))
        );
        for (line, name) in [
            ("--version", None),
            ("--root /r kill --all c1 9", Some("kill")),
            ("--root /r delete --force create", Some("delete")),
            ("features", Some("features")),
        ] {
            assert_eq!(read(line).unwrap().name, name, "{line}");
        }
    }

    #[test]
    fn unknown_command_lines_are_rejected() {
        for line in ["--new-option value create c", "--root", "make", "/create"] {
            assert!(read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn an_id_must_not_be_a_path() {
        let command = read("--root /r exec --process /p ../../etc").unwrap();
        assert_eq!(command.state(), Some("/r/etc/state.json".into()));
        assert_eq!(read("exec ..").unwrap().state(), None);
    }
}
