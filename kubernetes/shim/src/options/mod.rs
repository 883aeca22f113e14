//! Turns the settings of an artifact and a pod into the command line and environment of
//! `faasw pod`.
//!
//! Both set options by annotations `dev.faasw.…` with the names of docs/oci.md. The pod also sets
//! them by its container's arguments and variables. The pod takes precedence: name by name for
//! variables and configuration, as a whole for everything else. An artifact's request for a
//! permission is not a grant. Memory and time need no grant here, because the container's limits
//! bound them. Polling needs one, because it uses processor time at the expense of others.

use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
};

use faasw_common::options::{self, OptionForm, OptionPermission};

use crate::error::Error;

/// Prefix of annotations that are meant for functions.
pub const PREFIX: &str = "dev.faasw.";

/// Maximum size of all settings together in bytes, because the kernel limits command lines, too.
const ANNOTATIONS_MAX: usize = 1 << 20;

/// Maximum size of one argument in bytes (`MAX_ARG_STRLEN` is 128 KiB).
const ARGUMENT_MAX: usize = 100 << 10;

/// Path of the module inside the node's container.
pub const MODULE: &str = "/function.wasm";

/// Path of the archive with the function's files inside the node's container.
pub const FILES: &str = "/function.files";

/// Reserved names, which no function can have.
const RESERVED: [&str; 5] = ["healthz", "livez", "metrics", "readyz", "faasw"];

/// Where an option may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// In an artifact or a pod: the option concerns only the function itself, or is a limit.
    Artifact,
    /// An artifact requests the option, and the pod grants it by this word.
    Grant(&'static str),
    /// Only in a pod.
    Pod,
    /// Nowhere: the word that would grant the option, and the reason.
    Unavailable(&'static str, &'static str),
}

/// An option that an annotation can name.
#[derive(Clone, Copy, Debug)]
struct KnownOption {
    name: &'static str,
    form: OptionForm,
    by: By,
}

/// Options of the node instead of its function, besides `poll`.
const NODE_OPTIONS: [(&str, OptionForm); 4] = [
    ("allow-private", OptionForm::List),
    ("drain-delay", OptionForm::Text),
    ("log-format", OptionForm::Text),
    ("min-warm", OptionForm::Text),
];

/// The pod's annotation that grants what artifacts request.
const ACCEPT: &str = "accept";

/// All settings of a container.
#[derive(Debug, Default)]
pub struct ContainerSettings<'a> {
    /// The artifact's annotations.
    pub artifact: BTreeMap<String, String>,
    /// Whether the artifact has files.
    pub has_files: bool,
    /// The pod's annotations, as far as containerd passes them on.
    pub pod: BTreeMap<String, String>,
    /// The container's name in its pod.
    pub name: &'a str,
    /// The pod's host name.
    pub hostname: &'a str,
    /// The container's command and arguments.
    pub arguments: Vec<String>,
    /// The container's environment variables.
    pub environment: Vec<String>,
}

/// The node's process.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// The command line.
    pub arguments: Vec<String>,
    /// The node's own environment.
    pub environment: Vec<String>,
    /// The function's part of the command line: its name and options, without those of the node.
    pub function: Vec<String>,
    /// Files of names and values that the command line refers to. Other users of the host can read
    /// a command line, but not these files.
    pub tables: Vec<Table>,
}

/// A JSON file of names and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The path inside the node's container.
    pub path: &'static str,
    /// The names and values.
    pub pairs: BTreeMap<String, String>,
}

impl Table {
    /// Returns the contents of the file.
    #[must_use]
    pub fn json(&self) -> Vec<u8> {
        serde_json::json!(self.pairs).to_string().into_bytes()
    }
}

/// Maximum size of a table as JSON in bytes, equal to the node's limit.
const TABLE_MAX: usize = 128 << 10;

/// The options that become tables: the key, the option that names the file, and the file's path.
const TABLES: [(&str, &str, &str); 2] = [
    ("env", "env-file", "/function.env.json"),
    ("config", "config-file", "/function.config.json"),
];

impl ContainerSettings<'_> {
    /// Returns the node's process for these settings.
    ///
    /// # Errors
    /// Returns [`Error::Annotation`] if an annotation is unknown or has an invalid value, or if the
    /// artifact requests a permission that the pod neither grants nor refuses. Returns
    /// [`Error::Refused`] if a variable is invalid or the settings are too large.
    pub fn process(self) -> Result<Process, Error> {
        let accepted = accepted(&self.pod)?;
        let mut options = Options::default();
        for (name, value) in own_annotations(&self.artifact)? {
            if (name, value) == ("poll", "off") {
                continue;
            }
            let option = find_option(name)?;
            match option.by {
                By::Pod => return Err(Error::annotation(name, "an artifact cannot say this")),
                // The pod has to state that it runs without the option.
                By::Unavailable(word, why) => match &accepted {
                    Some(words) if !words.contains("all") && !words.contains(word) => {}
                    _ => {
                        return Err(Error::annotation(
                            name,
                            format_args!(
                                "the artifact asks for this, and {why}; the pod's annotation \
                                 {PREFIX}{ACCEPT}: none runs it without"
                            ),
                        ));
                    }
                },
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
                        options.say(option, value)?;
                    }
                    Some(_) => {}
                },
                By::Artifact => options.say(option, value)?,
            }
        }
        let of_artifact = std::mem::take(&mut options.whole);
        for (name, value) in own_annotations(&self.pod)? {
            if name == ACCEPT {
                continue;
            }
            let option = find_option(name)?;
            if let By::Unavailable(_, why) = option.by {
                return Err(Error::annotation(name, why));
            }
            options.say(option, value)?;
        }
        // The container's arguments after the command go to the function, as they would to a
        // program.
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
                // A function has no use for `PATH`. CRI sets `HOSTNAME` to the pod's name, which
                // would make the function a different one in each pod.
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
        let is_of_node = |argument: &String| {
            let option = argument.split_once('=').unwrap_or_default().0;
            let mut of_node = NODE_OPTIONS.iter().map(|(name, _)| *name).chain(["poll"]);
            of_node.any(|name| option.strip_prefix("--") == Some(name))
        };
        let tables = options.tables();
        let own: Vec<String> = options.arguments().collect();
        function.extend(own.iter().filter(|argument| !is_of_node(argument)).cloned());
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

/// Options while they are collected.
#[derive(Debug, Default)]
struct Options {
    /// Options that a later source replaces as a whole.
    whole: BTreeMap<&'static str, Vec<String>>,
    /// Options that a later source replaces name by name.
    pairs: BTreeMap<&'static str, BTreeMap<String, String>>,
}

impl Options {
    fn say(&mut self, option: KnownOption, value: &str) -> Result<(), Error> {
        let name = option.name;
        let list = || -> Result<Vec<String>, Error> {
            serde_json::from_str(value)
                .map_err(|_| Error::annotation(name, "it is no list of texts in JSON"))
        };
        if TABLES.iter().any(|(option, ..)| *option == name) {
            for pair in list()? {
                let (key, value) = match pair.split_once('=') {
                    Some((key, value)) if !key.is_empty() => (key, value),
                    _ => return Err(Error::annotation(name, "not of the form NAME=VALUE")),
                };
                let pairs = self.pairs.entry(name).or_default();
                pairs.insert(key.to_owned(), value.to_owned());
            }
            return Ok(());
        }
        let values = match option.form {
            OptionForm::Bytes => {
                vec![mebibytes(value).map_err(|why| Error::annotation(name, why))?]
            }
            _ if name == "files-at" => {
                if !value.starts_with('/') {
                    return Err(Error::annotation(name, "it is no absolute path"));
                }
                vec![format!("{FILES}:{value}")]
            }
            form if form.is_repeatable() => list()?,
            _ => vec![value.to_owned()],
        };
        // On the command line, `@` precedes a file's name; an annotation has the request itself.
        if name == "warmup-request" && values.iter().any(|value| value.starts_with('@')) {
            return Err(Error::annotation(name, "a request does not begin with @"));
        }
        self.whole.insert(option.flag(), values);
        Ok(())
    }

    /// Returns each option as a single argument, so that no value can be taken for an option.
    /// Tables are passed as the names of their files.
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

impl KnownOption {
    /// Returns the name of the option on the command line.
    fn flag(self) -> &'static str {
        match self.name {
            "arg" => "args",
            "files-at" => "files",
            name => name,
        }
    }
}

/// Returns the option of an annotation. An unknown option may be meant as a restriction, so it is
/// not ignored.
fn find_option(name: &str) -> Result<KnownOption, Error> {
    let of_node = NODE_OPTIONS.iter().find(|(known, _)| *known == name);
    let (name, form, by) = match (options::find(name), of_node) {
        (Some(option), _) => (option.name, option.form, who_sets(option.permission)),
        (None, Some((name, form))) => (*name, *form, By::Pod),
        (None, None) => return Err(Error::annotation(name, "there is no such option")),
    };
    Ok(KnownOption { name, form, by })
}

/// Returns where an option of this permission may be set.
fn who_sets(permission: OptionPermission) -> By {
    match permission {
        OptionPermission::Free | OptionPermission::AboveDefault => By::Artifact,
        OptionPermission::Polling => By::Grant("limits"),
        OptionPermission::Outbound => By::Grant("outbound"),
        OptionPermission::Stores => By::Grant("kv"),
        OptionPermission::Secrets => By::Unavailable("secrets", "a pod's node keeps no secrets"),
        OptionPermission::Hosts => {
            By::Unavailable("hosts", "a pod serves one function at all hosts")
        }
    }
}

/// Returns the words by which the pod grants requests of artifacts, or `None` without the
/// annotation.
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

fn own_annotations(annotations: &BTreeMap<String, String>) -> Result<Vec<(&str, &str)>, Error> {
    let ours = annotations.iter().filter_map(|(name, value)| {
        let name = name.strip_prefix(PREFIX)?;
        Some((name, value.as_str()))
    });
    let ours: Vec<_> = ours.collect();
    let bytes: usize = ours
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if bytes > ANNOTATIONS_MAX {
        Err(Error::Refused(format!(
            "annotations have more than {ANNOTATIONS_MAX} bytes"
        )))
    } else {
        Ok(ours)
    }
}

/// Rejects arguments and variables that the kernel would truncate or reject.
fn hold<'a>(all: impl Iterator<Item = &'a String>) -> Result<(), Error> {
    let mut bytes = 0;
    for one in all {
        bytes += one.len();
        if one.contains('\0') || one.len() > ARGUMENT_MAX || bytes > ANNOTATIONS_MAX {
            let what: String = one.chars().take(40).collect();
            return Err(Error::Refused(format!(
                "{what:?}…: arguments and variables have no byte 0, {ARGUMENT_MAX} bytes each and \
                 {ANNOTATIONS_MAX} together at most"
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

/// Returns the container's name if it is a valid function name, and `function` otherwise.
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
