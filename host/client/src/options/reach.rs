//! What a function may reach, and what is its own: hosts, stores, requests to others, and secrets.

use std::collections::{BTreeMap, BTreeSet};

use super::{FunctionOptions, OptionsError};
use crate::{HostName, Outbound, SecretName, StoreName};

/// Most stores that a function shares.
pub(super) const MOST_STORES: usize = 32;

/// Most grants of requests that a function makes.
pub(super) const MOST_OUTBOUND: usize = 64;

/// Most secrets that a function reads.
pub(super) const MOST_SECRETS: usize = 32;

impl FunctionOptions {
    /// Gives the function a host of its own: the gateway's requests for it are the
    /// function's, with their whole paths. No two functions can have the same.
    #[must_use]
    pub fn host(mut self, host: HostName) -> Self {
        self.hosts.insert(host);
        self
    }

    /// The hosts that are its own.
    #[must_use]
    pub fn hosts(&self) -> &BTreeSet<HostName> {
        &self.hosts
    }

    /// Lets the function use a key-value store that others may use, too, by its name; the one that
    /// it has to itself, `default`, needs no grant.
    #[must_use]
    pub fn store(mut self, name: StoreName) -> Self {
        self.stores.insert(name);
        self
    }

    /// The key-value stores that it shares.
    #[must_use]
    pub fn stores(&self) -> &BTreeSet<StoreName> {
        &self.stores
    }

    /// Lets the function make requests to what the grant names; without one it makes none.
    #[must_use]
    pub fn allow_outbound(mut self, grant: Outbound) -> Self {
        self.outbound.insert(grant);
        self
    }

    /// What it may make requests to.
    #[must_use]
    pub fn outbound(&self) -> &BTreeSet<Outbound> {
        &self.outbound
    }

    /// Gives the function a secret to read, by the same interfaces as its configuration: its value
    /// is set apart from any deployment, and comes with each request.
    #[must_use]
    pub fn secret(mut self, name: SecretName) -> Self {
        self.secrets.insert(name);
        self
    }

    /// The secrets that it reads.
    #[must_use]
    pub fn secrets(&self) -> &BTreeSet<SecretName> {
        &self.secrets
    }

    /// Binds a secret to a host: the function reads a random text in its place, for which the node
    /// puts the secret into the headers of requests to that host alone, over TLS. May be called
    /// again with other hosts. That the function may make requests there has to be granted besides
    /// ([`FunctionOptions::allow_outbound`]).
    #[must_use]
    pub fn bind_secret(mut self, name: SecretName, host: Outbound) -> Self {
        self.bound_secrets.entry(name).or_default().insert(host);
        self
    }

    /// The secrets that are bound to hosts, and to which.
    #[must_use]
    pub fn bound_secrets(&self) -> &BTreeMap<SecretName, BTreeSet<Outbound>> {
        &self.bound_secrets
    }

    /// Checks what the types cannot.
    pub(super) fn check_reach(&self) -> Result<(), OptionsError> {
        if self.stores.len() > MOST_STORES {
            return Err(OptionsError::Stores(self.stores.len()));
        }
        if self.outbound.len() > MOST_OUTBOUND {
            return Err(OptionsError::Outbound(self.outbound.len()));
        }
        self.check_secrets()
    }

    fn check_secrets(&self) -> Result<(), OptionsError> {
        let count = self.secrets.len() + self.bound_secrets.len();
        if count > MOST_SECRETS {
            return Err(OptionsError::Secrets(count));
        }
        for name in self.secrets.iter().chain(self.bound_secrets.keys()) {
            if self.configuration.contains_key(name.as_str()) {
                return Err(OptionsError::SecretInConfiguration(name.clone()));
            }
        }
        for (name, hosts) in &self.bound_secrets {
            if self.secrets.contains(name) {
                return Err(OptionsError::SecretReadAndBound(name.clone()));
            }
            if hosts.len() > MOST_OUTBOUND {
                return Err(OptionsError::SecretHosts(hosts.len()));
            }
            let is_open = |host: &&Outbound| !host.grant().is_of_hosts_by_tls();
            if let Some(open) = hosts.iter().find(is_open) {
                return Err(OptionsError::SecretBound(open.clone()));
            }
        }
        Ok(())
    }
}
