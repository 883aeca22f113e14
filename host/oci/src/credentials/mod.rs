//! Reads the logins that `docker login` and `podman login` store.
//!
//! The first of these files that has the registry is used. If `$REGISTRY_AUTH_FILE` is set, it is
//! the only file. Otherwise the files are `config.json` in `$DOCKER_CONFIG` or `~/.docker`, then
//! `containers/auth.json` in `$XDG_RUNTIME_DIR`, then the same in `$XDG_CONFIG_HOME` or
//! `~/.config`. Within a file, the registry's own helper (`credHelpers`) comes first. Then follow
//! the stored logins (`auths`), of which the longest key that is a prefix of the repository counts,
//! as in Podman. Last comes the helper for all registries (`credsStore`).
//!
//! The crate `docker_credential` reads some of these files. However, it waits for a helper without
//! a timeout, accepts any output of the helper, uses the helper's name in a path unchecked, and
//! supports keys for registries but not for repositories.

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

/// Maximum size of a file of logins in bytes.
const FILE_MAX: u64 = 4 << 20;

/// The key of Docker Hub in Docker's files and for its helpers.
const HUB_KEY: &str = "https://index.docker.io/v1/";

/// A credential for a registry.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// A user name and a password.
    Password {
        /// The user name.
        user: String,
        /// The password.
        password: String,
    },
    /// A refresh token, for which a token server issues tokens.
    IdentityToken(String),
}

impl fmt::Debug for Credential {
    /// Writes the credential without its secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { user, .. } => write!(f, "Password of {user:?}"),
            Self::IdentityToken(_) => f.write_str("IdentityToken"),
        }
    }
}

/// The reason why stored logins cannot be used. It contains no stored values.
#[derive(Debug, Error)]
pub enum CredentialError {
    /// A file cannot be read.
    #[error("{} cannot be read: {error}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// A file is not a valid file of logins.
    #[error("{} is no file of log-ins: {why}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A helper failed.
    #[error("{program}: {why}")]
    Helper {
        /// The helper's program.
        program: String,
        /// The reason.
        why: String,
    },
}

/// The files that store logins.
#[derive(Clone, Debug, Default)]
pub struct Files(Vec<PathBuf>);

impl Files {
    /// Returns the files of this process's user.
    #[must_use]
    pub fn of_user() -> Self {
        Self::of(|name| {
            env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        })
    }

    /// Returns these files, in the order in which they are searched.
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

    /// Finds the stored credential of a repository. Returns `None` if there is none.
    ///
    /// # Errors
    /// Returns [`CredentialError`] if a file exists but cannot be read, or if a helper fails.
    /// Continuing without a login would hide the cause.
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

/// The relevant part of a file. Docker's files have many more settings.
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

/// Reads a file. Returns `None` if it does not exist or is empty.
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
    // Podman and Docker leave empty files behind.
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    // The parser's message may contain a value from the file, for example a password.
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
        // Docker Hub's helpers know it by an old address.
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
            // An empty entry means that a helper has the login.
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

/// Returns the keys under which a repository's login can be stored, the longest first.
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

/// Normalises a key: `https://index.docker.io/v1/` becomes `docker.io`.
fn normal(key: &str) -> &str {
    let bare = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"));
    let key = match bare {
        // The path of a URL is a version of the protocol.
        Some(bare) => bare.split('/').next().unwrap_or(bare),
        None => key.trim_end_matches('/'),
    };
    match key {
        "index.docker.io" | "registry-1.docker.io" | "index.docker.io/v1" => "docker.io",
        key => key,
    }
}

impl Entry {
    /// Returns the credential of the entry, if it has one.
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

/// Decodes `user:password` from base64, with or without padding.
fn decode(auth: &str) -> Result<Credential, &'static str> {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let decoded = GeneralPurpose::new(&alphabet::STANDARD, config)
        .decode(auth)
        .map_err(|_| "an auth is not base64")?;
    let text = String::from_utf8(decoded).map_err(|_| "an auth is no text")?;
    // Old versions of Docker append zero bytes.
    let (user, password) = text
        .trim_end_matches('\0')
        .split_once(':')
        .ok_or("an auth has no colon")?;
    Ok(Credential::Password {
        user: user.to_owned(),
        password: password.to_owned(),
    })
}
