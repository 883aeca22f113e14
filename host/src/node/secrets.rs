//! The secrets of functions: set by the operator and passed to requests.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use faasw_abi::configuration::is_reader;
use faasw_client::{FunctionName, Outbound, SECRET_BYTES, SecretInfo, SecretName};
use faasw_pool::{SECRETS_MAX, Secrets};
use thiserror::Error;
use zeroize::Zeroizing;

use super::{
    core::{Core, blocking},
    function::Function,
    handle::Node,
};
use crate::{
    failure::Failure,
    registry::{RegistryError, VersionRecord},
    services::secrets::{BoundSecrets, SealError},
};

/// Why a secret was not set or removed, or cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The value is longer than the limit.
    #[error("a secret has at most {SECRET_BYTES} bytes")]
    TooLong,
    /// The value is not text in UTF-8, which functions read.
    #[error("a secret must be UTF-8 text; encode other data, for example in Base64")]
    NoText,
    /// The secrets of the function exceed their limit together.
    #[error(
        "a function's secrets and their names may take {SECRETS_MAX} bytes in all: remove an \
         unused one"
    )]
    TooMany,
    /// The function has no secret of this name.
    #[error("{0} has no secret {1}")]
    Unknown(FunctionName, SecretName),
    /// The secret cannot be sealed or opened.
    #[error("{0}")]
    Seal(String),
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl From<SealError> for SecretError {
    fn from(error: SealError) -> Self {
        Self::Seal(error.to_string())
    }
}

/// The secrets of a version, as its requests receive them.
#[derive(Debug)]
pub(super) struct VersionSecrets {
    /// The secrets' names, and the hosts of those that are bound to some.
    names: BTreeMap<SecretName, Option<Vec<Outbound>>>,
    opened: Mutex<SecretCache>,
    /// Held while the secrets are opened. Requests that arrive meanwhile wait for the result.
    opening: tokio::sync::Mutex<()>,
}

/// The opened secrets, unless secrets were set or removed since.
#[derive(Debug, Default)]
struct SecretCache {
    /// Counts changes of the function's secrets.
    changes: u64,
    secrets: Option<OpenedSecrets>,
}

/// The secrets of one request.
#[derive(Clone, Debug)]
pub(super) struct OpenedSecrets {
    /// The values that the function reads. A bound secret is replaced by its token.
    pub(super) given: Secrets,
    /// The bound secrets that the node puts into the function's calls.
    pub(super) bound: Option<Arc<BoundSecrets>>,
}

impl VersionSecrets {
    /// Returns the secrets of a version. Returns `None` if it has none, or imports nothing to read
    /// them.
    pub(super) fn of(record: &VersionRecord) -> Option<Self> {
        let options = &record.options;
        let read = options.secrets().iter();
        let read = read.map(|name| (name.clone(), None));
        let bound = options.bound_secrets().iter();
        let bound =
            bound.map(|(name, hosts)| (name.clone(), Some(hosts.iter().cloned().collect())));
        let names: BTreeMap<_, _> = read.chain(bound).collect();
        if names.is_empty() || !reads_configuration(record) {
            return None;
        }
        Some(Self {
            names,
            opened: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        })
    }

    /// Drops the opened secrets, because a secret was set or removed.
    fn invalidate(&self) {
        let mut opened = self.lock();
        opened.changes += 1;
        opened.secrets = None;
    }

    fn lock(&self) -> MutexGuard<'_, SecretCache> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a version imports an interface that reads a configuration.
pub(super) fn reads_configuration(record: &VersionRecord) -> bool {
    record.imports.iter().any(|import| is_reader(import))
}

impl OpenedSecrets {
    fn new(
        read: &[(SecretName, Zeroizing<Vec<u8>>)],
        bound: Vec<(SecretName, Vec<Outbound>, Zeroizing<Vec<u8>>)>,
    ) -> io::Result<Self> {
        let bound = if bound.is_empty() {
            None
        } else {
            Some(Arc::new(BoundSecrets::new(bound)?))
        };
        let read = read.iter();
        let read = read.map(|(name, value)| (name.as_str().as_bytes(), value.as_slice()));
        let tokens = bound.iter().flat_map(|bound| bound.tokens());
        let tokens = tokens.map(|(name, token)| (name.as_str().as_bytes(), token.as_bytes()));
        let pairs: Vec<(&[u8], &[u8])> = read.chain(tokens).collect();
        let given = Secrets::new(&pairs)?;
        Ok(Self { given, bound })
    }
}

impl Core {
    /// Returns the secrets for a request of this function, if it has some.
    pub(super) async fn secrets_for(
        &self,
        function: &Arc<Function>,
    ) -> Result<Option<OpenedSecrets>, Failure> {
        let Some(given) = &function.secrets else {
            return Ok(None);
        };
        let opened = given.lock().secrets.clone();
        match opened {
            Some(opened) => Ok(Some(opened)),
            None => Box::pin(self.open_for(function, given)).await.map(Some),
        }
    }

    /// Opens the secrets of a function. Concurrent requests share one opening.
    async fn open_for(
        &self,
        function: &Arc<Function>,
        given: &VersionSecrets,
    ) -> Result<OpenedSecrets, Failure> {
        let _opening = given.opening.lock().await;
        let changes = {
            let opened = given.lock();
            if let Some(secrets) = &opened.secrets {
                return Ok(secrets.clone());
            }
            opened.changes
        };
        let opened = self.open_secrets(function, given.names.clone()).await;
        // The function may have been removed meanwhile. Then the secrets may be those of a later
        // function of the same name, or may have been removed before their function.
        drop(self.committing.lock().await);
        if function.is_removed() {
            return Err(Failure::UnknownFunction(function.name.to_string()));
        }
        let secrets = opened.map_err(|error| Failure::Secrets(error.to_string()))?;
        let mut opened = given.lock();
        if opened.changes == changes {
            opened.secrets = Some(secrets.clone());
        }
        Ok(secrets)
    }

    /// Makes changes of a function's secrets take effect.
    fn invalidate_secrets(&self, name: &FunctionName) {
        if let Some(function) = self.function(name.as_str())
            && let Some(given) = &function.secrets
        {
            given.invalidate();
        }
    }

    /// Returns the secrets that a function reads and that have no value yet. Returns none if the
    /// registry cannot be read.
    pub(super) async fn unset_secrets(&self, function: &Function) -> Vec<SecretName> {
        let Some(given) = &function.secrets else {
            return Vec::new();
        };
        let (storage, name) = (self.storage.clone(), function.name.clone());
        let set = blocking(move || storage.registry.secrets(Some(&name))).await;
        let Ok(set) = set else {
            return Vec::new();
        };
        let is_set = |name: &SecretName| set.iter().any(|info| info.name == *name);
        let unset = given.names.keys().filter(|name| !is_set(name));
        unset.cloned().collect()
    }

    async fn open_secrets(
        &self,
        function: &Arc<Function>,
        names: BTreeMap<SecretName, Option<Vec<Outbound>>>,
    ) -> Result<OpenedSecrets, SecretError> {
        let (storage, function) = (self.storage.clone(), function.clone());
        let opening = tokio::task::spawn_blocking(move || {
            let sealed = storage.registry.sealed(&function.name)?;
            let mut read: Vec<(SecretName, Zeroizing<Vec<u8>>)> = Vec::new();
            let mut bound = Vec::new();
            for (name, sealed) in sealed {
                let Some(hosts) = names.get(&name) else {
                    continue;
                };
                let value = storage.secrets.open(&function.name, &name, &sealed)?;
                match hosts {
                    None => read.push((name, value)),
                    Some(hosts) => bound.push((name, hosts.clone(), value)),
                }
            }
            OpenedSecrets::new(&read, bound).map_err(|error| SecretError::Seal(error.to_string()))
        });
        opening
            .await
            .unwrap_or(Err(RegistryError::Interrupted.into()))
    }
}

impl Node {
    /// Lists the secrets of one function or of all: their names and when they were set, never their
    /// values.
    ///
    /// # Errors
    /// Returns an error if the registry cannot be read.
    pub async fn secrets(
        &self,
        function: Option<FunctionName>,
    ) -> Result<Vec<SecretInfo>, SecretError> {
        let storage = self.core.storage.clone();
        let read = blocking(move || storage.registry.secrets(function.as_ref()));
        Ok(read.await?)
    }

    /// Sets a secret of a function, which need not exist yet. Returns once the sealed secret is on
    /// disk. Requests that begin later receive it if their function was deployed with its name
    /// ([`FunctionOptions::secret`](crate::FunctionOptions::secret)). The secret is removed with
    /// the function.
    ///
    /// # Errors
    /// Returns [`SecretError::TooLong`] or [`SecretError::NoText`] for an invalid value,
    /// [`SecretError::TooMany`] if the function's secrets exceed their limit, and another error if
    /// the secret cannot be sealed or stored.
    pub async fn set_secret(
        &self,
        function: &FunctionName,
        name: &SecretName,
        value: &[u8],
    ) -> Result<(), SecretError> {
        if value.len() > SECRET_BYTES {
            return Err(SecretError::TooLong);
        }
        if std::str::from_utf8(value).is_err() {
            return Err(SecretError::NoText);
        }
        let sealed = self.core.storage.secrets.seal(function, name, value)?;
        let (core, function, name) = (self.core.clone(), function.clone(), name.clone());
        // A blocking task, so that dropping this future does not interrupt it: opened secrets must
        // be dropped after the change.
        let set = blocking(move || {
            let set = core.storage.registry.set_secret(&function, &name, &sealed);
            // After an error it may be unknown whether the secret was stored.
            if !matches!(set, Ok(false)) {
                core.invalidate_secrets(&function);
            }
            set
        });
        if set.await? {
            Ok(())
        } else {
            Err(SecretError::TooMany)
        }
    }

    /// Removes a secret of a function. Returns once the removal is on disk. Requests that begin
    /// later do not receive it.
    ///
    /// # Errors
    /// Returns [`SecretError::Unknown`] if the function has no secret of this name, and another
    /// error if the registry fails.
    pub async fn remove_secret(
        &self,
        function: &FunctionName,
        name: &SecretName,
    ) -> Result<(), SecretError> {
        let (core, of, called) = (self.core.clone(), function.clone(), name.clone());
        let removed = blocking(move || {
            let removed = core.storage.registry.remove_secret(&of, &called);
            if !matches!(removed, Ok(false)) {
                core.invalidate_secrets(&of);
            }
            removed
        });
        if removed.await? {
            Ok(())
        } else {
            Err(SecretError::Unknown(function.clone(), name.clone()))
        }
    }
}
