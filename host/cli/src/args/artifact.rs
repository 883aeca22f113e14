//! Arguments of `push`, `pull` and `deploy`: artifacts and registries.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use faasw_client::{FunctionName, spelling};
use faasw_oci::Reference;

use super::{DataDir, Format};
use crate::{options::Options, values::time};

/// The default interval of polling a tag.
const INTERVAL: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub struct Deploy {
    /// Component, WASI command, script, folder of a script, or oci://REGISTRY/REPOSITORY[:TAG]
    pub file: PathBuf,
    /// Entry file of a script's folder [default: handler, index, main or app], or MODULE:OBJECT
    #[arg(long, value_name = "PATH", help_heading = "Function")]
    pub entry: Option<String>,
    /// Name of the function and of its path [default: the file's or the repository's]
    #[arg(long, help_heading = "Function")]
    pub name: Option<FunctionName>,
    #[command(flatten)]
    pub options: Options,
    /// Busy-wait this long for the next request: off, auto (200us) or a time [default: the node's]
    ///
    /// Polling uses idle processors only. The maximum is 10ms.
    #[arg(long, help_heading = "Limits", value_name = "TIME", value_parser = spelling::poll::parse)]
    pub poll: Option<Duration>,
    #[command(flatten)]
    pub accept: Accept,
    #[command(flatten)]
    pub follow: Follow,
    #[command(flatten)]
    pub registries: Registries,
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct Push {
    /// WebAssembly component or WASI command
    pub file: PathBuf,
    /// Destination: REGISTRY/REPOSITORY[:TAG]
    #[arg(value_parser = reference)]
    pub reference: Reference,
    #[command(flatten)]
    pub options: Options,
    #[command(flatten)]
    pub registries: Registries,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct Pull {
    /// Source: REGISTRY/REPOSITORY[:TAG], or @sha256:… instead of the tag
    #[arg(value_parser = reference)]
    pub reference: Reference,
    /// Write the module to this file [default: the repository's last part and .wasm]
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub registries: Registries,
    #[command(flatten)]
    pub format: Format,
}

/// The connection to a registry.
#[derive(Clone, Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Registry")]
pub struct Registries {
    /// Connect without TLS
    ///
    /// Registries on this machine (localhost) need no TLS, unless --ca is set.
    #[arg(long)]
    pub plain_http: bool,
    /// Also trust the certificate authorities in this PEM file
    ///
    /// SSL_CERT_FILE replaces the system's authorities.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Also send the registry's credentials to this token server (repeatable)
    ///
    /// Without this option a token server receives them only if its host is related to the
    /// registry's.
    #[arg(long = "token-host", value_name = "HOST")]
    pub token_hosts: Vec<String>,
    /// Fail if the registry sends and receives nothing for this long [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = time)]
    pub registry_timeout: Option<Duration>,
}

impl Registries {
    /// Returns whether any of these options is set.
    pub fn is_given(&self) -> bool {
        let has_hosts = !self.token_hosts.is_empty();
        self.plain_http || self.ca.is_some() || has_hosts || self.registry_timeout.is_some()
    }
}

/// The polling of a tag.
#[derive(Clone, Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Artifact")]
pub struct Follow {
    /// Keep polling the tag and deploy each new digest until interrupted
    #[arg(long)]
    pub watch: bool,
    /// Polling interval, at least 1s; backs off after errors [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = interval, requires = "watch")]
    pub interval: Option<Duration>,
}

impl Follow {
    /// Returns whether the tag is to be followed.
    pub fn is_given(&self) -> bool {
        self.watch
    }

    /// Returns the interval of polling the tag.
    pub fn every(&self) -> Duration {
        self.interval.unwrap_or(INTERVAL)
    }
}

/// A kind of permission that an artifact can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    /// Outbound calls to hosts and to other functions
    Outbound,
    /// Secrets, readable or bound to hosts
    Secrets,
    /// Shared key-value stores
    Kv,
    /// Hosts at which the function is served
    Hosts,
    /// More memory or time than the node's defaults, and polling
    Limits,
    /// All kinds
    All,
    /// No kind
    None,
}

/// The permissions that an artifact receives.
#[derive(Clone, Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Artifact")]
pub struct Accept {
    /// Grant these kinds of permission that the artifact requests
    ///
    /// The function is deployed without the others. Without this option, an artifact that requests
    /// permissions is rejected.
    #[arg(
        long = "accept",
        value_name = "KIND[,KIND]",
        value_delimiter = ',',
        value_enum
    )]
    kinds: Vec<Kind>,
}

impl Accept {
    /// Returns whether the option is set.
    pub fn is_given(&self) -> bool {
        !self.kinds.is_empty()
    }

    /// Returns the granted kinds.
    pub fn kinds(&self) -> BTreeSet<Kind> {
        if self.kinds.contains(&Kind::All) {
            Kind::value_variants().iter().copied().collect()
        } else {
            self.kinds.iter().copied().collect()
        }
    }
}

/// Parses a reference, with or without the prefix `oci://`.
pub fn reference(text: &str) -> Result<Reference, String> {
    let text = text.strip_prefix("oci://").unwrap_or(text);
    text.parse()
        .map_err(|error: faasw_oci::reference::ReferenceError| error.to_string())
}

/// Parses an interval of at least 1 s, because registries reject clients that poll more often.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = time(text)?;
    if interval < Duration::from_secs(1) {
        Err("shorter than 1s".into())
    } else {
        Ok(interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse};

    #[test]
    fn a_registry_is_named_and_all_of_push_is_said_as_for_deploy() {
        let Command::Push(push) =
            parse("push a.wasm oci://reg.test/a:v1 -e A=b --memory 64").unwrap()
        else {
            panic!("not push");
        };
        assert_eq!(push.reference.to_string(), "reg.test/a:v1");
        assert_eq!(push.options.environment.len(), 1);
        for line in [
            "push a.wasm a:v1",
            "push a.wasm",
            "pull hello",
            "pull reg.test/a@sha256:1",
            "deploy oci://reg.test/a --interval 5s",
            "deploy oci://reg.test/a --watch --interval 5ms",
            "deploy oci://reg.test/a --accept everything",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn kinds_are_accepted_one_by_one_or_all() {
        let accepted = |line: &str| match parse(line).unwrap() {
            Command::Deploy(deploy) => deploy.accept.kinds(),
            other => panic!("{other:?}"),
        };
        assert!(accepted("deploy oci://reg.test/a").is_empty());
        let two = accepted("deploy oci://reg.test/a --accept outbound,kv");
        assert_eq!(two, [Kind::Outbound, Kind::Kv].into());
        assert!(accepted("deploy oci://reg.test/a --accept all").contains(&Kind::Limits));
        assert!(!accepted("deploy oci://reg.test/a --accept none").contains(&Kind::Limits));
    }
}
