//! What an artifact and a pod say, as the command line of `faasw pod` and its environment.
//!
//! Both say it by annotations `dev.faasw.…` in the words of docs/oci.md, the pod also by its
//! container's arguments and variables. The pod wins: variables and configuration name by name, all
//! else as a whole. What an artifact asks for is not granted by it; more memory and time are no
//! question here, for the container's limits hold all of it, but polling takes what others would
//! pay for.

use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
};

use crate::error::Error;

/// What annotations begin with that are meant for functions.
pub const PREFIX: &str = "dev.faasw.";

/// Most bytes of all that is said: what becomes a command line has an end in the kernel, too.
const SAID_MAX: usize = 1 << 20;

/// Most bytes of one argument (`MAX_ARG_STRLEN` is 128 KiB).
const ARGUMENT_MAX: usize = 100 << 10;

/// Where the node finds the module.
pub const MODULE: &str = "/function.wasm";

/// Where it finds the module's files, an archive.
pub const FILES: &str = "/function.files";

/// Names that no function can have.
const RESERVED: [&str; 5] = ["healthz", "livez", "metrics", "readyz", "faasw"];

/// How an annotation is said on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// As it is.
    Plain,
    /// Bytes, which the command line has in MiB.
    Mebibytes,
    /// A list of texts in JSON, each an option.
    List,
    /// A list of `NAME=VALUE`.
    Pairs,
    /// Where the artifact's files are to be.
    FilesAt,
}

/// Who may say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// An artifact: it concerns nobody but itself, or is a limit.
    Artifact,
    /// An artifact asks for it, the pod grants it by this word.
    Grant(&'static str),
    /// The pod alone.
    Pod,
}

/// What can be said: the annotation, the option, how and by whom.
const KNOWN: [(&str, &str, Form, By); 22] = [
    ("memory", "memory", Form::Mebibytes, By::Artifact),
    ("timeout", "timeout", Form::Plain, By::Artifact),
    ("cpu-time", "cpu-time", Form::Plain, By::Artifact),
    ("idle-client", "idle-client", Form::Plain, By::Artifact),
    ("idle-guest", "idle-guest", Form::Plain, By::Artifact),
    ("total-time", "total-time", Form::Plain, By::Artifact),
    ("concurrency", "concurrency", Form::Plain, By::Artifact),
    ("freeze", "freeze", Form::Plain, By::Artifact),
    ("freeze-at", "freeze-at", Form::Plain, By::Artifact),
    ("init", "init", Form::Plain, By::Artifact),
    ("files-at", "files", Form::FilesAt, By::Artifact),
    ("env", "env", Form::Pairs, By::Artifact),
    ("config", "config", Form::Pairs, By::Artifact),
    ("arg", "args", Form::List, By::Artifact),
    ("warmup-request", "warmup-request", Form::List, By::Artifact),
    (
        "allow-outbound",
        "allow-outbound",
        Form::List,
        By::Grant("outbound"),
    ),
    ("kv", "kv", Form::List, By::Grant("kv")),
    ("allow-private", "allow-private", Form::List, By::Pod),
    ("drain-delay", "drain-delay", Form::Plain, By::Pod),
    ("log-format", "log-format", Form::Plain, By::Pod),
    ("min-parked", "min-parked", Form::Plain, By::Pod),
    ("poll", "poll", Form::Plain, By::Grant("limits")),
];

/// Options of the node, and not of the function that it has.
const OF_NODE: [&str; 5] = [
    "--allow-private",
    "--drain-delay",
    "--log-format",
    "--min-parked",
    "--poll",
];

/// What is known and cannot be had in a pod: the annotation, the word that would accept it, and
/// why.
const NOT_IN_PODS: [(&str, &str, &str); 4] = [
    ("secret", "secrets", "a pod's node keeps no secrets"),
    ("bind-secret", "secrets", "a pod's node keeps no secrets"),
    ("host", "hosts", "a pod serves one function at all hosts"),
    ("source", "source", "nobody says it but who deploys"),
];

/// By which annotation a pod says what artifacts are given.
const ACCEPT: &str = "accept";

/// What a container is started with.
#[derive(Debug, Default)]
pub struct Said<'a> {
    /// The artifact's annotations.
    pub artifact: BTreeMap<String, String>,
    /// Whether it has files.
    pub has_files: bool,
    /// The pod's annotations, as far as containerd hands them on.
    pub pod: BTreeMap<String, String>,
    /// The container's name in its pod.
    pub name: &'a str,
    /// The pod's name as its host.
    pub hostname: &'a str,
    /// The container's command and arguments.
    pub arguments: Vec<String>,
    /// The container's variables.
    pub environment: Vec<String>,
}

/// What the node's process is to be.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its command line.
    pub arguments: Vec<String>,
    /// Its own environment.
    pub environment: Vec<String>,
    /// What of the command line is the function's: its name and options, and nothing of the node's.
    pub function: Vec<String>,
    /// Files that it names, of names and values: a command line is for everybody on the host to
    /// read.
    pub tables: Vec<Table>,
}

/// A file of names and values, in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Where the node finds it.
    pub path: &'static str,
    /// What it has.
    pub pairs: BTreeMap<String, String>,
}

impl Table {
    /// What is in the file.
    #[must_use]
    pub fn json(&self) -> Vec<u8> {
        serde_json::json!(self.pairs).to_string().into_bytes()
    }
}

/// Most bytes of one, in JSON: as many as the node takes.
const TABLE_MAX: usize = 128 << 10;

/// Where the node finds the function's variables and configuration, and the options that say so.
const TABLES: [(&str, &str, &str); 2] = [
    ("env", "env-file", "/function.env.json"),
    ("config", "config-file", "/function.config.json"),
];

impl Said<'_> {
    /// The node's process.
    ///
    /// # Errors
    /// Which annotation is none that is known here, or has a value that it cannot have, and what an
    /// artifact asks for as long as nobody has said whether it gets it.
    pub fn process(self) -> Result<Process, Error> {
        let accepted = accepted(&self.pod)?;
        let mut options = Options::default();
        for (name, value) in of_ours(&self.artifact)? {
            if (name, value) == ("poll", "off") {
                continue;
            }
            let Some((_, option, form, by)) = known(name)? else {
                // Nobody can have it in a pod. That it is not wanted is for the pod to say.
                refuse_unless_said(name, &self.pod)?;
                continue;
            };
            match by {
                By::Pod => return Err(Error::annotation(name, "an artifact cannot say this")),
                By::Grant(word) => match &accepted {
                    None if self.pod.contains_key(&format!("{PREFIX}{name}")) => {}
                    None => {
                        return Err(Error::annotation(
                            name,
                            format_args!(
                                "the artifact asks for this; the pod's annotation {PREFIX}{ACCEPT} \
                                 says whether it gets it: {word}, or none"
                            ),
                        ));
                    }
                    Some(words) if words.contains("all") || words.contains(word) => {
                        options.say(name, option, form, value)?;
                    }
                    Some(_) => {}
                },
                By::Artifact => options.say(name, option, form, value)?,
            }
        }
        let of_artifact = std::mem::take(&mut options.whole);
        for (name, value) in of_ours(&self.pod)? {
            if name == ACCEPT {
                continue;
            }
            let Some((_, option, form, _)) = known(name)? else {
                let why = NOT_IN_PODS.iter().find(|(known, ..)| *known == name);
                let why = why.map_or("there is no such option", |(.., why)| why);
                return Err(Error::annotation(name, why));
            };
            options.say(name, option, form, value)?;
        }
        // What the pod's container says behind its command is the function's, as it would be a
        // program's.
        let behind: Vec<String> = self.arguments.into_iter().skip(1).collect();
        if !behind.is_empty() {
            options.whole.insert("args", behind);
        }
        let mut environment = Vec::new();
        let mut health = None;
        for variable in self.environment {
            let Some((name, value)) = variable.split_once('=') else {
                continue;
            };
            match name {
                "PORT" | "FAASW_LOG" | "FAASW_KV_SERVER" => environment.push(variable),
                "FAASW_HEALTH_PORT" => {
                    health = Some(u16::from_str(value).map_err(|_| {
                        Error::Refused(format!("the variable {name} is {value:.20}, and no port"))
                    })?);
                }
                // Where a shell looks for programs is nothing to a function. The pod's name, which
                // CRI puts there, would make it another function in each pod.
                "PATH" => {}
                "HOSTNAME" if value == self.hostname => {}
                name if name.starts_with("FAASW_") || name.is_empty() => {}
                name => {
                    let variables = options.pairs.entry("env").or_default();
                    variables.insert(name.to_owned(), value.to_owned());
                }
            }
        }
        for (option, values) in of_artifact {
            options.whole.entry(option).or_insert(values);
        }
        if self.has_files {
            let at_root = || vec![FILES.to_owned()];
            options.whole.entry("files").or_insert_with(at_root);
        } else if options.whole.contains_key("files") {
            return Err(Error::annotation("files-at", "the artifact has no files"));
        }
        let mut arguments: Vec<String> = ["/bin/faasw", "pod", MODULE].map(str::to_owned).into();
        let mut function = vec![format!("--name={}", function_name(self.name))];
        arguments.extend_from_slice(&function);
        if let Some(port) = health {
            arguments.push(format!("--health-listen=[::]:{port}"));
        }
        let of_node = |argument: &String| {
            let option = argument.split_once('=').unwrap_or_default().0;
            OF_NODE.contains(&option)
        };
        let tables = options.tables();
        let own: Vec<String> = options.arguments().collect();
        function.extend(own.iter().filter(|argument| !of_node(argument)).cloned());
        arguments.extend(own);
        for table in &tables {
            let bytes = table.json().len();
            if bytes > TABLE_MAX {
                let what = table.path;
                return Err(Error::Refused(format!(
                    "{what}: variables and configuration have {TABLE_MAX} bytes each in JSON at \
                     most, and not {bytes}"
                )));
            }
        }
        let pairs = tables.iter().flat_map(|table| &table.pairs);
        let pairs = pairs.flat_map(|(name, value)| [name, value]);
        hold(arguments.iter().chain(&environment).chain(pairs))?;
        Ok(Process {
            arguments,
            environment,
            function,
            tables,
        })
    }
}

/// Options as they are collected.
#[derive(Debug, Default)]
struct Options {
    /// Those that one who says them says as a whole.
    whole: BTreeMap<&'static str, Vec<String>>,
    /// Those that are said name by name.
    pairs: BTreeMap<&'static str, BTreeMap<String, String>>,
}

impl Options {
    fn say(
        &mut self,
        name: &str,
        option: &'static str,
        form: Form,
        value: &str,
    ) -> Result<(), Error> {
        let list = || -> Result<Vec<String>, Error> {
            serde_json::from_str(value)
                .map_err(|_| Error::annotation(name, "it is no list of texts in JSON"))
        };
        let values = match form {
            Form::Plain => vec![value.to_owned()],
            Form::Mebibytes => vec![mebibytes(value).map_err(|why| Error::annotation(name, why))?],
            Form::FilesAt if value.starts_with('/') => vec![format!("{FILES}:{value}")],
            Form::FilesAt => return Err(Error::annotation(name, "it is no absolute path")),
            Form::List => list()?,
            Form::Pairs => {
                for pair in list()? {
                    let (key, value) = match pair.split_once('=') {
                        Some((key, value)) if !key.is_empty() => (key, value),
                        _ => return Err(Error::annotation(name, "not of the form NAME=VALUE")),
                    };
                    let pairs = self.pairs.entry(option).or_default();
                    pairs.insert(key.to_owned(), value.to_owned());
                }
                return Ok(());
            }
        };
        // Behind an @ the command line names a file, and an annotation has the request itself.
        if option == "warmup-request" && values.iter().any(|value| value.starts_with('@')) {
            return Err(Error::annotation(name, "a request does not begin with @"));
        }
        self.whole.insert(option, values);
        Ok(())
    }

    /// Each as one argument, so that no value is taken for an option; what is named in files as
    /// those.
    fn arguments(self) -> impl Iterator<Item = String> {
        let whole = self.whole.into_iter().flat_map(|(option, values)| {
            let one = move |value| format!("--{option}={value}");
            values.into_iter().map(one)
        });
        let said = TABLES
            .iter()
            .filter(move |(option, ..)| self.pairs.contains_key(option));
        whole.chain(said.map(|(_, option, path)| format!("--{option}={path}")))
    }

    fn tables(&self) -> Vec<Table> {
        let tables = TABLES.iter().filter_map(|(option, _, path)| {
            let pairs = self.pairs.get(option)?.clone();
            Some(Table { path, pairs })
        });
        tables.collect()
    }
}

type Known = (&'static str, &'static str, Form, By);

/// What is known of an annotation; nothing where it is one that pods have not.
fn known(name: &str) -> Result<Option<Known>, Error> {
    if let Some(found) = KNOWN.iter().find(|(known, ..)| *known == name) {
        return Ok(Some(*found));
    }
    if NOT_IN_PODS.iter().any(|(known, ..)| *known == name) {
        Ok(None)
    } else {
        // It may have been a restriction.
        Err(Error::annotation(name, "there is no such option"))
    }
}

fn refuse_unless_said(name: &str, pod: &BTreeMap<String, String>) -> Result<(), Error> {
    let accepted = accepted(pod)?;
    let entry = NOT_IN_PODS.iter().find(|(known, ..)| *known == name);
    match (entry, accepted) {
        (Some((_, word, why)), accepted) => match accepted {
            Some(words) if !words.contains("all") && !words.contains(*word) => Ok(()),
            _ => Err(Error::annotation(
                name,
                format_args!(
                    "the artifact asks for this, and {why}; the pod's annotation {PREFIX}{ACCEPT}: \
                     none runs it without"
                ),
            )),
        },
        (None, _) => Ok(()),
    }
}

/// What the pod gives of what artifacts ask for; nothing where it does not say.
fn accepted(pod: &BTreeMap<String, String>) -> Result<Option<BTreeSet<String>>, Error> {
    let Some(said) = pod.get(&format!("{PREFIX}{ACCEPT}")) else {
        return Ok(None);
    };
    let words: BTreeSet<String> = said.split(',').map(|word| word.trim().to_owned()).collect();
    let is_known = |word: &String| {
        matches!(
            word.as_str(),
            "outbound" | "kv" | "limits" | "secrets" | "hosts" | "all" | "none"
        )
    };
    if !words.iter().all(is_known) || (words.contains("none") && words.len() > 1) {
        return Err(Error::annotation(
            ACCEPT,
            "it is a list of outbound, kv and limits, or all, or none",
        ));
    }
    Ok(Some(words))
}

fn of_ours(annotations: &BTreeMap<String, String>) -> Result<Vec<(&str, &str)>, Error> {
    let ours = annotations.iter().filter_map(|(name, value)| {
        let name = name.strip_prefix(PREFIX)?;
        Some((name, value.as_str()))
    });
    let ours: Vec<_> = ours.collect();
    let bytes: usize = ours
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if bytes > SAID_MAX {
        Err(Error::Refused(format!(
            "annotations have more than {SAID_MAX} bytes"
        )))
    } else {
        Ok(ours)
    }
}

/// What the kernel would cut, or not take.
fn hold<'a>(all: impl Iterator<Item = &'a String>) -> Result<(), Error> {
    let mut bytes = 0;
    for one in all {
        bytes += one.len();
        if one.contains('\0') || one.len() > ARGUMENT_MAX || bytes > SAID_MAX {
            let what: String = one.chars().take(40).collect();
            return Err(Error::Refused(format!(
                "{what:?}…: arguments and variables have no byte 0, {ARGUMENT_MAX} bytes each and \
                 {SAID_MAX} together at most"
            )));
        }
    }
    Ok(())
}

fn mebibytes(bytes: &str) -> Result<String, &'static str> {
    let bytes: u64 = bytes.parse().map_err(|_| "it is no number of bytes")?;
    if bytes.is_multiple_of(1 << 20) && bytes > 0 {
        Ok((bytes >> 20).to_string())
    } else {
        Err("a pod takes whole MiB: multiples of 1048576")
    }
}

/// The container's name, where functions may be called so.
fn function_name(container: &str) -> &str {
    let is_letter = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let fits = (1..=63).contains(&container.len()) && container.bytes().all(is_letter);
    if fits && !container.starts_with('-') && !RESERVED.contains(&container) {
        container
    } else {
        "function"
    }
}

#[cfg(test)]
mod tests;
