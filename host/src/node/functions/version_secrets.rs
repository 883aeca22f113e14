//! The secrets of a version, as its requests receive them.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use faasw_abi::configuration::is_reader;
use faasw_client::{Outbound, SecretName};
use faasw_pool::Secrets;
use zeroize::Zeroizing;

use crate::{registry::VersionRecord, services::secrets::BoundSecrets};

/// The secrets of a version, as its requests receive them.
#[derive(Debug)]
pub(crate) struct VersionSecrets {
    /// The secrets' names, and the hosts of those that are bound to some.
    pub(crate) names: BTreeMap<SecretName, Option<Vec<Outbound>>>,
    cache: Mutex<SecretCache>,
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
pub(crate) struct OpenedSecrets {
    /// The values that the function reads. A bound secret is replaced by its token.
    pub(crate) given: Secrets,
    /// The bound secrets that the node puts into the function's calls.
    pub(crate) bound: Option<Arc<BoundSecrets>>,
}

impl VersionSecrets {
    /// Returns the secrets of a version. Returns `None` if it has none, or imports nothing to read
    /// them.
    pub(crate) fn of(record: &VersionRecord) -> Option<Self> {
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
            cache: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        })
    }

    /// Returns the opened secrets, if they are in memory.
    pub(crate) fn opened(&self) -> Option<OpenedSecrets> {
        self.cache().secrets.clone()
    }

    /// Returns the opened secrets, or the result of `open`. Concurrent requests share one opening.
    pub(crate) async fn get_or_open<E>(
        &self,
        open: impl Future<Output = Result<OpenedSecrets, E>>,
    ) -> Result<OpenedSecrets, E> {
        let _opening = self.opening.lock().await;
        let changes = {
            let cache = self.cache();
            if let Some(secrets) = &cache.secrets {
                return Ok(secrets.clone());
            }
            cache.changes
        };
        let secrets = open.await?;
        let mut cache = self.cache();
        if cache.changes == changes {
            cache.secrets = Some(secrets.clone());
        }
        Ok(secrets)
    }

    /// Drops the opened secrets, because a secret was set or removed.
    pub(crate) fn invalidate(&self) {
        let mut cache = self.cache();
        cache.changes += 1;
        cache.secrets = None;
    }

    fn cache(&self) -> MutexGuard<'_, SecretCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a version imports an interface that reads a configuration.
pub(crate) fn reads_configuration(record: &VersionRecord) -> bool {
    record.imports.iter().any(|import| is_reader(import))
}

impl OpenedSecrets {
    pub(crate) fn new(
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
