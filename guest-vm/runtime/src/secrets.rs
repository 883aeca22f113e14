//! A function's secrets: the names are known from the start, the values only with a request.
//!
//! The values are in the mailbox before the request begins. Values that are read are copied to the
//! instance's own memory, which is reset before the next request.

use alloc::vec::Vec;

use faasw_abi::channel::Channel;
use faasw_abi::secrets::decode;
use faasw_abi::wire::Pair;

use crate::platform::Platform;

/// The error for a read of secrets before they are present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SecretsNotReady;

/// The secrets of a function.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    names: Vec<Vec<u8>>,
    /// The secrets of the request, once one was read.
    received: Option<Vec<Pair>>,
}

impl Secrets {
    /// Returns secrets with these names, whose values are not present yet.
    pub(crate) fn named(names: Vec<Vec<u8>>) -> Self {
        Self {
            names,
            received: None,
        }
    }

    /// Returns whether there are no secrets, and never will be.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the names of all secrets, whether or not they have a value.
    pub(crate) fn names(&self) -> &[Vec<u8>] {
        &self.names
    }

    /// Returns whether there is a secret with this name.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.names.iter().any(|own| own == name)
    }

    /// Returns all secrets that have a value.
    ///
    /// # Errors
    /// Returns [`SecretsNotReady`] before a request.
    pub(crate) fn all(&mut self, platform: &mut impl Platform) -> Result<&[Pair], SecretsNotReady> {
        if self.received.is_none() {
            if !platform.is_open(Channel::SECRETS) {
                return Err(SecretsNotReady);
            }
            // The node sent it, so it is a valid list.
            let secrets = decode(&platform.head(Channel::SECRETS)).unwrap_or_default();
            self.received = Some(secrets);
        }
        Ok(self.received.as_deref().unwrap_or_default())
    }

    /// Returns the value of a secret, if it has one.
    ///
    /// # Errors
    /// Returns [`SecretsNotReady`] before a request.
    pub(crate) fn value(
        &mut self,
        name: &[u8],
        platform: &mut impl Platform,
    ) -> Result<Option<&[u8]>, SecretsNotReady> {
        let mut all = self.all(platform)?.iter();
        let found = all.find(|(own, _)| own == name);
        Ok(found.map(|(_, value)| value.as_slice()))
    }
}
