//! A function's secrets: their names from the start, their values with a request only.
//!
//! They lie in the mailbox before the request begins. What is read of them here is in the
//! instance's own memory, which the next request does not find.

use alloc::vec::Vec;

use faasw_abi::channel::Channel;
use faasw_abi::secrets::decode;
use faasw_abi::wire::Pair;

use crate::platform::Platform;

/// Secrets are asked for before there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotYet;

/// What a function has of its secrets.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    names: Vec<Vec<u8>>,
    /// Those of the request, once one was read.
    given: Option<Vec<Pair>>,
}

impl Secrets {
    /// Secrets of these names, the values of which are still to come.
    pub(crate) fn named(names: Vec<Vec<u8>>) -> Self {
        Self { names, given: None }
    }

    /// Whether there are none, and never will be.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether a secret is called so.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.names.iter().any(|own| own == name)
    }

    /// All that have a value.
    ///
    /// # Errors
    /// [`NotYet`] before a request.
    pub(crate) fn all(&mut self, platform: &mut impl Platform) -> Result<&[Pair], NotYet> {
        if self.given.is_none() {
            if !platform.is_open(Channel::SECRETS) {
                return Err(NotYet);
            }
            // It is the node's, and so a list.
            let told = decode(&platform.head(Channel::SECRETS)).unwrap_or_default();
            self.given = Some(told);
        }
        Ok(self.given.as_deref().unwrap_or_default())
    }

    /// The value of one, if it has one.
    ///
    /// # Errors
    /// [`NotYet`] before a request.
    pub(crate) fn value(
        &mut self,
        name: &[u8],
        platform: &mut impl Platform,
    ) -> Result<Option<&[u8]>, NotYet> {
        let mut all = self.all(platform)?.iter();
        let found = all.find(|(own, _)| own == name);
        Ok(found.map(|(_, value)| value.as_slice()))
    }
}
