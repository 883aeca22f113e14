//! What Docker and Podman keep of log-ins, as `docker login` and `podman login` leave it.
//!
//! The first of these files that knows the registry is asked: `$REGISTRY_AUTH_FILE` alone where
//! that is set; else `config.json` in `$DOCKER_CONFIG` or `~/.docker`, then `containers/auth.json`
//! in `$XDG_RUNTIME_DIR`, then in `$XDG_CONFIG_HOME` or `~/.config`. In a file a registry's own
//! helper (`credHelpers`) comes first, then what stands there (`auths`, by the longest key that a
//! repository begins with, as Podman matches them), then the helper for all (`credsStore`).
//!
//! The crate `docker_credential` reads some of these files; it waits for a helper for ever and
//! takes whatever that writes, puts its name into a path as it is, and knows a registry's keys
//! only, not a repository's.

mod helper;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    env, fmt, fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde::Deserialize;
use thiserror::Error;

use crate::Reference;

/// Most bytes of a file of log-ins.
const FILE_MAX: u64 = 4 << 20;

/// What Docker Hub is known by to Docker and its helpers.
const HUB_KEY: &str = "https://index.docker.io/v1/";

/// How somebody is known to a registry.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// A name and a password.
    Password {
        /// Who.
        user: String,
        /// What nobody else knows.
        password: String,
    },
    /// What a server of tokens gives tokens for.
    IdentityToken(String),
}

impl fmt::Debug for Credential {
    /// Without what is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { user, .. } => write!(f, "Password of {user:?}"),
            Self::IdentityToken(_) => f.write_str("IdentityToken"),
        }
    }
}

/// Why what is kept of log-ins cannot be used. Nothing of what it has is told.
#[derive(Debug, Error)]
pub enum CredentialError {
    /// A file cannot be read.
    #[error("{} cannot be read: {error}", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A file is no such file.
    #[error("{} is no file of log-ins: {why}", .path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// In which way.
        why: String,
    },
    /// A helper does not help.
    #[error("{program}: {why}")]
    Helper {
        /// Which.
        program: String,
        /// What it did.
        why: String,
    },
}

/// Where log-ins are kept.
#[derive(Clone, Debug, Default)]
pub struct Files(Vec<PathBuf>);

impl Files {
    /// The files of this process's user.
    #[must_use]
    pub fn of_user() -> Self {
        Self::of(|name| {
            env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        })
    }

    /// These, in the order in which they are asked.
    #[must_use]
    pub fn at(paths: Vec<PathBuf>) -> Self {
        Self(paths)
    }

    fn of(variable: impl Fn(&str) -> Option<PathBuf>) -> Self {
        if let Some(file) = variable("REGISTRY_AUTH_FILE") {
            return Self(vec![file]);
        }
        let home = || variable("HOME");
        let docker = variable("DOCKER_CONFIG").or_else(|| Some(home()?.join(".docker")));
        let config = variable("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config")));
        let containers = |folder: PathBuf| folder.join("containers/auth.json");
        let files = [
            docker.map(|folder| folder.join("config.json")),
            variable("XDG_RUNTIME_DIR").map(containers),
            config.map(containers),
        ];
        Self(files.into_iter().flatten().collect())
    }

    /// What is kept for a repository, if anything is.
    ///
    /// # Errors
    /// When a file is there and cannot be read, or a helper fails: to go on as nobody would hide
    /// why.
    pub async fn find(&self, of: &Reference) -> Result<Option<Credential>, CredentialError> {
        for path in &self.0 {
            let Some(config) = read(path)? else { continue };
            if let Some(found) = config.find(of, path).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// A file, as far as it is of interest. Docker's has much more.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    auths: BTreeMap<String, Entry>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

/// Reads a file; nothing where there is none.
fn read(path: &Path) -> Result<Option<Config>, CredentialError> {
    let failed = |error| CredentialError::Read {
        path: path.to_owned(),
        error,
    };
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::new();
    file.take(FILE_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(malformed(path, "it is too large"));
    }
    // Podman and Docker leave empty ones behind.
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    // What the parser says may have a value in it, which may be a password.
    let parsed = serde_json::from_slice(&bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        malformed(path, format!("line {line}, column {column}"))
    })?;
    Ok(Some(parsed))
}

fn malformed(path: &Path, why: impl Into<String>) -> CredentialError {
    CredentialError::Malformed {
        path: path.to_owned(),
        why: why.into(),
    }
}

impl Config {
    async fn find(
        &self,
        of: &Reference,
        path: &Path,
    ) -> Result<Option<Credential>, CredentialError> {
        let keys = keys(of);
        // Hub's helpers know it by an address of old.
        let server = match of.registry() {
            "docker.io" => HUB_KEY,
            registry => registry,
        };
        let by_key = |(key, _): &(&String, &String)| normal(key) == of.registry();
        if let Some((_, helper)) = self.cred_helpers.iter().find(by_key)
            && let Some(found) = helper::ask(helper, server).await?
        {
            return Ok(Some(found));
        }
        for wanted in &keys {
            let mut entries = self.auths.iter();
            let Some((_, entry)) = entries.find(|(key, _)| normal(key) == *wanted) else {
                continue;
            };
            // An empty one says that a helper has it.
            if let Some(found) = entry.credential().map_err(|why| malformed(path, why))? {
                return Ok(Some(found));
            }
        }
        match &self.creds_store {
            Some(helper) if !helper.is_empty() => helper::ask(helper, server).await,
            _ => Ok(None),
        }
    }
}

/// The keys that are a repository's, the longest first.
fn keys(of: &Reference) -> Vec<String> {
    let whole = format!("{}/{}", of.registry(), of.repository());
    let ends = whole.match_indices('/').map(|(at, _)| at);
    let mut keys: Vec<String> = ends
        .filter_map(|end| whole.get(..end))
        .map(ToOwned::to_owned)
        .collect();
    keys.push(whole);
    keys.reverse();
    keys
}

/// A key as it would be written now: `https://index.docker.io/v1/` is `docker.io`.
fn normal(key: &str) -> &str {
    let bare = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"));
    let key = match bare {
        // What stands behind the host is a version of the protocol.
        Some(bare) => bare.split('/').next().unwrap_or(bare),
        None => key.trim_end_matches('/'),
    };
    match key {
        "index.docker.io" | "registry-1.docker.io" | "index.docker.io/v1" => "docker.io",
        key => key,
    }
}

impl Entry {
    /// What it has, if it has something.
    fn credential(&self) -> Result<Option<Credential>, &'static str> {
        let there = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(token) = there(&self.identitytoken) {
            return Ok(Some(Credential::IdentityToken(token)));
        }
        if let Some(auth) = there(&self.auth) {
            return decode(&auth).map(Some);
        }
        let pair = there(&self.username).zip(there(&self.password));
        Ok(pair.map(|(user, password)| Credential::Password { user, password }))
    }
}

/// `user:password` in base64, with or without what fills it up.
fn decode(auth: &str) -> Result<Credential, &'static str> {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let decoded = GeneralPurpose::new(&alphabet::STANDARD, config)
        .decode(auth)
        .map_err(|_| "an auth is not base64")?;
    let text = String::from_utf8(decoded).map_err(|_| "an auth is no text")?;
    // As old versions of Docker wrote it.
    let (user, password) = text
        .trim_end_matches('\0')
        .split_once(':')
        .ok_or("an auth has no colon")?;
    Ok(Credential::Password {
        user: user.to_owned(),
        password: password.to_owned(),
    })
}
