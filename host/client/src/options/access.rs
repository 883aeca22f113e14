//! Options for a function's access to the outside: hosts, stores, outbound requests and secrets.

use std::collections::{BTreeMap, BTreeSet};

use super::{FunctionOptions, OptionsError};
use crate::{HostName, Outbound, SecretName, StoreName};

/// Maximum number of shared stores of a function.
pub(super) const MOST_STORES: usize = 32;

/// Maximum number of outbound grants of a function.
pub(super) const MOST_OUTBOUND: usize = 64;

/// Maximum number of secrets of a function.
pub(super) const MOST_SECRETS: usize = 32;

impl FunctionOptions {
    /// Adds a host of the function's own. The gateway routes requests for this host to the
    /// function, with their whole paths. Two functions cannot have the same host.
    #[must_use]
    pub fn host(mut self, host: HostName) -> Self {
        self.hosts.insert(host);
        self
    }

    /// Returns the function's own hosts.
    #[must_use]
    pub fn hosts(&self) -> &BTreeSet<HostName> {
        &self.hosts
    }

    /// Grants access to a shared key-value store. The function's own store, `default`, needs no
    /// grant.
    #[must_use]
    pub fn store(mut self, name: StoreName) -> Self {
        self.stores.insert(name);
        self
    }

    /// Returns the shared key-value stores.
    #[must_use]
    pub fn stores(&self) -> &BTreeSet<StoreName> {
        &self.stores
    }

    /// Grants outbound requests. Without a grant, the function cannot make any.
    #[must_use]
    pub fn allow_outbound(mut self, grant: Outbound) -> Self {
        self.outbound.insert(grant);
        self
    }

    /// Returns the grants of outbound requests.
    #[must_use]
    pub fn outbound(&self) -> &BTreeSet<Outbound> {
        &self.outbound
    }

    /// Adds a secret that the function reads by the same interfaces as its configuration. The value
    /// is set independently of deployments, and the node sends it with each request.
    #[must_use]
    pub fn secret(mut self, name: SecretName) -> Self {
        self.secrets.insert(name);
        self
    }

    /// Returns the secrets that the function reads.
    #[must_use]
    pub fn secrets(&self) -> &BTreeSet<SecretName> {
        &self.secrets
    }

    /// Binds a secret to a host. The function reads a random placeholder. The node replaces it with
    /// the secret only in the headers of requests to that host, over TLS. Further calls bind the
    /// secret to further hosts. Requests to the host need a grant of their own
    /// ([`FunctionOptions::allow_outbound`]).
    #[must_use]
    pub fn bind_secret(mut self, name: SecretName, host: Outbound) -> Self {
        self.bound_secrets.entry(name).or_default().insert(host);
        self
    }

    /// Returns the secrets that are bound to hosts, with these hosts.
    #[must_use]
    pub fn bound_secrets(&self) -> &BTreeMap<SecretName, BTreeSet<Outbound>> {
        &self.bound_secrets
    }

    /// Checks constraints that the types do not express.
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
