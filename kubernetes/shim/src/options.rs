//! What an artifact and a pod say, as the command line of `faasw pod` and its environment.
//!
//! Both say it by annotations `dev.faasw.…` in the words of docs/oci.md, the pod also by its container's arguments and
//! variables. The pod wins: variables and configuration name by name, all else as a whole. What an artifact asks for is not
//! granted by it; limits are no question here, for the container's hold all of it.

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
const KNOWN: [(&str, &str, Form, By); 21] = [
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
    ("poll", "poll", Form::Plain, By::Pod),
];

/// What is known and cannot be had in a pod: the annotation, the word that would accept it, and why.
const NOT_IN_PODS: [(&str, &str, &str); 5] = [
    ("secret", "secrets", "a pod's node keeps no secrets"),
    ("bind-secret", "secrets", "a pod's node keeps no secrets"),
    ("host", "hosts", "a pod serves one function at all hosts"),
    ("files-at", "files", "a pod's function has no files"),
    ("source", "source", "nobody says it but who deploys"),
];

/// By which annotation a pod says what artifacts are given.
const ACCEPT: &str = "accept";

/// What a container is started with.
#[derive(Debug, Default)]
pub struct Said<'a> {
    /// The artifact's annotations.
    pub artifact: BTreeMap<String, String>,
    /// The pod's annotations, as far as containerd hands them on.
    pub pod: BTreeMap<String, String>,
    /// The container's name in its pod.
    pub name: &'a str,
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
}

impl Said<'_> {
    /// The node's process.
    ///
    /// # Errors
    /// Which annotation is none that is known here, or has a value that it cannot have, and what an artifact asks for as
    /// long as nobody has said whether it gets it.
    pub fn process(self) -> Result<Process, Error> {
        let accepted = accepted(&self.pod)?;
        let mut options = Options::default();
        for (name, value) in of_ours(&self.artifact)? {
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
                                "the artifact asks for this; the pod's annotation {PREFIX}{ACCEPT} says whether it gets it: {word}, or none"
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
        // What the pod's container says behind its command is the function's, as it would be a program's.
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
                // Where a shell looks for programs is nothing to a function.
                "PATH" => {}
                name if name.starts_with("FAASW_") || name.is_empty() => {}
                name => {
                    options
                        .pairs
                        .insert(("env", name.to_owned()), value.to_owned());
                }
            }
        }
        for (option, values) in of_artifact {
            options.whole.entry(option).or_insert(values);
        }
        let mut arguments: Vec<String> = ["/bin/faasw", "pod", MODULE].map(str::to_owned).into();
        arguments.push(format!("--name={}", function_name(self.name)));
        if let Some(port) = health {
            arguments.push(format!("--health-listen=[::]:{port}"));
        }
        arguments.extend(options.arguments());
        hold(arguments.iter().chain(&environment))?;
        Ok(Process {
            arguments,
            environment,
        })
    }
}

/// Options as they are collected.
#[derive(Debug, Default)]
struct Options {
    /// Those that one who says them says as a whole.
    whole: BTreeMap<&'static str, Vec<String>>,
    /// Those that are said name by name.
    pairs: BTreeMap<(&'static str, String), String>,
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
            Form::List => list()?,
            Form::Pairs => {
                for pair in list()? {
                    let (key, value) = match pair.split_once('=') {
                        Some((key, value)) if !key.is_empty() => (key, value),
                        _ => return Err(Error::annotation(name, "not of the form NAME=VALUE")),
                    };
                    self.pairs
                        .insert((option, key.to_owned()), value.to_owned());
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

    /// Each as one argument, so that no value is taken for an option.
    fn arguments(self) -> impl Iterator<Item = String> {
        let whole = self.whole.into_iter().flat_map(|(option, values)| {
            let one = move |value| format!("--{option}={value}");
            values.into_iter().map(one)
        });
        let pairs = self.pairs.into_iter();
        whole.chain(pairs.map(|((option, name), value)| format!("--{option}={name}={value}")))
    }
}

type Known = (&'static str, &'static str, Form, By);

/// What is known of an annotation; nothing where it is one that pods have not.
fn known(name: &str) -> Result<Option<Known>, Error> {
    if let Some(found) = KNOWN.iter().find(|(known, ..)| *known == name) {
        return Ok(Some(*found));
    }
    match NOT_IN_PODS.iter().any(|(known, ..)| *known == name) {
        true => Ok(None),
        // It may have been a restriction.
        false => Err(Error::annotation(name, "there is no such option")),
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
                    "the artifact asks for this, and {why}; the pod's annotation {PREFIX}{ACCEPT}: none runs it without"
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
    match bytes > SAID_MAX {
        true => Err(Error::Refused(format!(
            "annotations have more than {SAID_MAX} bytes"
        ))),
        false => Ok(ours),
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
                "{what:?}…: arguments and variables have no byte 0, {ARGUMENT_MAX} bytes each and {SAID_MAX} together at most"
            )));
        }
    }
    Ok(())
}

fn mebibytes(bytes: &str) -> Result<String, &'static str> {
    let bytes: u64 = bytes.parse().map_err(|_| "it is no number of bytes")?;
    match bytes.is_multiple_of(1 << 20) && bytes > 0 {
        true => Ok((bytes >> 20).to_string()),
        false => Err("a pod takes whole MiB: multiples of 1048576"),
    }
}

/// The container's name, where functions may be called so.
fn function_name(container: &str) -> &str {
    let is_letter = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let fits = (1..=63).contains(&container.len()) && container.bytes().all(is_letter);
    match fits && !container.starts_with('-') && !RESERVED.contains(&container) {
        true => container,
        false => "function",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(said: &[(&str, &str)]) -> BTreeMap<String, String> {
        let said = said.iter();
        said.map(|(name, value)| (format!("{PREFIX}{name}"), (*value).to_owned()))
            .collect()
    }

    fn said(artifact: &[(&str, &str)], pod: &[(&str, &str)]) -> Said<'static> {
        Said {
            artifact: annotations(artifact),
            pod: annotations(pod),
            name: "hello",
            ..Said::default()
        }
    }

    fn arguments(artifact: &[(&str, &str)], pod: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let process = said(artifact, pod).process();
        let mut arguments = process.map_err(|error| error.to_string())?.arguments;
        let first: Vec<String> = arguments.drain(..4).collect();
        assert_eq!(first, ["/bin/faasw", "pod", MODULE, "--name=hello"]);
        Ok(arguments)
    }

    #[test]
    fn an_artifact_says_what_concerns_itself() {
        let said = arguments(
            &[
                ("memory", "67108864"),
                ("timeout", "1s 500ms"),
                ("env", r#"["A=b=c", "B="]"#),
                ("arg", r#"["--listen=0.0.0.0:1"]"#),
            ],
            &[],
        );
        let expected = [
            "--args=--listen=0.0.0.0:1",
            "--memory=64",
            "--timeout=1s 500ms",
            "--env=A=b=c",
            "--env=B=",
        ];
        assert_eq!(said.unwrap(), expected);
        assert!(arguments(&[], &[]).unwrap().is_empty());
    }

    #[test]
    fn the_pod_wins_name_by_name_or_as_a_whole() {
        let mut said = said(
            &[
                ("memory", "67108864"),
                ("env", r#"["A=1", "B=1"]"#),
                ("arg", r#"["a", "b"]"#),
                ("config", r#"["k=1"]"#),
            ],
            &[("memory", "1048576"), ("env", r#"["B=2", "C=2"]"#)],
        );
        said.arguments = ["/hello.wasm", "c"].map(str::to_owned).into();
        said.environment = ["C=3", "PORT=81", "PATH=/bin", "LD_PRELOAD=/x", "FAASW_X=1"]
            .map(str::to_owned)
            .into();
        let process = said.process().unwrap();
        assert_eq!(
            process.arguments[4..],
            [
                "--args=c",
                "--memory=1",
                "--config=k=1",
                "--env=A=1",
                "--env=B=2",
                "--env=C=3",
                "--env=LD_PRELOAD=/x",
            ]
        );
        assert_eq!(process.environment, ["PORT=81"]);
    }

    #[test]
    fn what_an_artifact_asks_for_is_given_by_the_pod() {
        let asking: &[(&str, &str)] = &[("allow-outbound", r#"["https://a.test"]"#)];
        let refused = arguments(asking, &[]).unwrap_err();
        assert!(refused.contains("dev.faasw.accept"), "{refused}");
        let given = ["--allow-outbound=https://a.test"];
        for accept in ["outbound", "all", "kv, outbound"] {
            let said = arguments(asking, &[("accept", accept)]);
            assert_eq!(said.unwrap(), given, "{accept}");
        }
        for accept in ["none", "limits"] {
            let said = arguments(asking, &[("accept", accept)]);
            assert!(said.unwrap().is_empty(), "{accept}");
        }
        // What the pod says itself needs no other word.
        let own = arguments(asking, &[("allow-outbound", r#"["https://b.test"]"#)]);
        assert_eq!(own.unwrap(), ["--allow-outbound=https://b.test"]);
        for wrong in ["", "everything", "none,outbound"] {
            assert!(arguments(&[], &[("accept", wrong)]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_pods_have_not_is_refused_unless_it_is_not_wanted() {
        for name in ["secret", "bind-secret", "host"] {
            let asking: &[(&str, &str)] = &[(name, r#"["x"]"#)];
            for pod in [&[][..], &[("accept", "all")]] {
                assert!(arguments(asking, pod).is_err(), "{name}");
            }
            assert!(
                arguments(asking, &[("accept", "none")]).unwrap().is_empty(),
                "{name}"
            );
            assert!(arguments(&[], asking).is_err(), "{name}");
        }
    }

    #[test]
    fn what_nobody_can_say_is_refused() {
        for (name, value) in [
            ("something-new", "x"),
            ("", "x"),
            ("allow-private", r#"["10.0.0.0/8"]"#),
            ("poll", "auto"),
            ("accept", "all"),
            ("data-dir", "/"),
            ("listen", "0.0.0.0:1"),
            ("memory", "1"),
            ("memory", "0"),
            ("memory", "-1048576"),
            ("env", "A=b"),
            ("env", r#"["A"]"#),
            ("env", r#"["=b"]"#),
            ("env", r#"["A=\u0000"]"#),
            ("warmup-request", r#"["@/etc/shadow"]"#),
        ] {
            assert!(arguments(&[(name, value)], &[]).is_err(), "{name} {value}");
        }
        assert!(arguments(&[], &[("listen", "0.0.0.0:1")]).is_err());
        let much = format!("[\"A={}\"]", "x".repeat(ARGUMENT_MAX));
        assert!(arguments(&[("env", &much)], &[]).is_err());
        let much = "x".repeat(SAID_MAX);
        assert!(arguments(&[("init", &much)], &[]).is_err());
    }

    #[test]
    fn variables_of_the_node_are_checked() {
        let with = |variable: &str| {
            let mut said = said(&[], &[]);
            said.environment = vec![variable.to_owned()];
            said.process()
        };
        let process = with("FAASW_HEALTH_PORT=9191").unwrap();
        assert_eq!(process.arguments[4..], ["--health-listen=[::]:9191"]);
        assert!(with("FAASW_HEALTH_PORT=x").is_err());
        assert!(with("A=\0").is_err());
    }

    #[test]
    fn a_function_is_called_as_its_container_if_it_can_be() {
        let long = "x".repeat(64);
        for (container, name) in [
            ("hello-1", "hello-1"),
            ("healthz", "function"),
            ("", "function"),
            ("A", "function"),
            ("-x", "function"),
            (&long, "function"),
        ] {
            assert_eq!(function_name(container), name);
        }
    }
}
