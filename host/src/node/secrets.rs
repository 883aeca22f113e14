//! The secrets of functions: set by the operator and passed to requests.

use std::{collections::BTreeMap, sync::Arc};

use faasw_client::{FunctionName, Outbound, SECRET_BYTES, SecretInfo, SecretName};
use faasw_pool::SECRETS_MAX;
use thiserror::Error;
use zeroize::Zeroizing;

use super::{
    functions::{Function, FunctionTable, OpenedSecrets, VersionSecrets},
    storage::Storage,
};
use crate::{
    failure::Failure,
    registry::{Registry, RegistryError},
    services::secrets::SealError,
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

/// Opens and changes the secrets of functions.
#[derive(Debug)]
pub(crate) struct SecretStore {
    storage: Arc<Storage>,
    functions: Arc<FunctionTable>,
}

impl SecretStore {
    pub(super) fn new(storage: Arc<Storage>, functions: Arc<FunctionTable>) -> Self {
        Self { storage, functions }
    }

    /// Returns the secrets for a request of this function, if it has some.
    pub(super) async fn of_request(
        &self,
        function: &Arc<Function>,
    ) -> Result<Option<OpenedSecrets>, Failure> {
        let Some(secrets) = &function.secrets else {
            return Ok(None);
        };
        match secrets.opened() {
            Some(opened) => Ok(Some(opened)),
            None => {
                let opening = secrets.get_or_open(self.open(function, secrets));
                Box::pin(opening).await.map(Some)
            }
        }
    }

    async fn open(
        &self,
        function: &Arc<Function>,
        secrets: &VersionSecrets,
    ) -> Result<OpenedSecrets, Failure> {
        let opened = self
            .read(function.name.clone(), secrets.names.clone())
            .await;
        // The function may have been removed meanwhile. Then the secrets may be those of a later
        // function of the same name, or may have been removed before their function.
        drop(self.functions.lock_changes().await);
        if function.is_removed() {
            return Err(Failure::UnknownFunction(function.name.to_string()));
        }
        opened.map_err(|error| Failure::Secrets(error.to_string()))
    }

    async fn read(
        &self,
        function: FunctionName,
        names: BTreeMap<SecretName, Option<Vec<Outbound>>>,
    ) -> Result<OpenedSecrets, SecretError> {
        let storage = self.storage.clone();
        let opening = tokio::task::spawn_blocking(move || {
            let sealed = storage.registry.sealed(&function)?;
            let mut read: Vec<(SecretName, Zeroizing<Vec<u8>>)> = Vec::new();
            let mut bound = Vec::new();
            for (name, sealed) in sealed {
                let Some(hosts) = names.get(&name) else {
                    continue;
                };
                let value = storage.secrets.open(&function, &name, &sealed)?;
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

    /// Returns the secrets that a function reads and that have no value yet. Returns none if the
    /// registry cannot be read.
    pub(super) async fn unset(&self, function: &Function) -> Vec<SecretName> {
        let Some(secrets) = &function.secrets else {
            return Vec::new();
        };
        let Ok(set) = self.list(Some(function.name.clone())).await else {
            return Vec::new();
        };
        let is_set = |name: &SecretName| set.iter().any(|info| info.name == *name);
        let unset = secrets.names.keys().filter(|name| !is_set(name));
        unset.cloned().collect()
    }

    pub(super) async fn list(
        &self,
        function: Option<FunctionName>,
    ) -> Result<Vec<SecretInfo>, RegistryError> {
        let reading = self
            .storage
            .run(move |registry| registry.secrets(function.as_ref()));
        reading.await
    }

    /// Sets a secret of a function. See [`Node::set_secret`](crate::Node::set_secret).
    pub(super) async fn set(
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
        let sealed = self.storage.secrets.seal(function, name, value)?;
        let name = name.clone();
        let set = self.change(function, move |registry, function| {
            registry.set_secret(function, &name, &sealed)
        });
        if set.await? {
            Ok(())
        } else {
            Err(SecretError::TooMany)
        }
    }

    /// Removes a secret of a function. See [`Node::remove_secret`](crate::Node::remove_secret).
    pub(super) async fn remove(
        &self,
        function: &FunctionName,
        name: &SecretName,
    ) -> Result<(), SecretError> {
        let secret = name.clone();
        let removed = self.change(function, move |registry, function| {
            registry.remove_secret(function, &secret)
        });
        if removed.await? {
            Ok(())
        } else {
            Err(SecretError::Unknown(function.clone(), name.clone()))
        }
    }

    /// Changes secrets of a function with `change`, which returns whether it has changed any, and
    /// lets the change take effect.
    async fn change<C>(&self, function: &FunctionName, change: C) -> Result<bool, RegistryError>
    where
        C: FnOnce(&Registry, &FunctionName) -> Result<bool, RegistryError> + Send + 'static,
    {
        let (functions, function) = (self.functions.clone(), function.clone());
        // A blocking task, so that dropping this future does not interrupt it: opened secrets must
        // be dropped after the change.
        let changing = self.storage.run(move |registry| {
            let changed = change(registry, &function);
            // After an error it may be unknown whether the change was stored.
            if !matches!(changed, Ok(false))
                && let Some(function) = functions.get(function.as_str())
                && let Some(secrets) = &function.secrets
            {
                secrets.invalidate();
            }
            changed
        });
        changing.await
    }
}
