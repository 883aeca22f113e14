//! Secrets of functions: sealed on disk, and opened when a request of their function first needs
//! them.
//!
//! Each secret is sealed with AES-256-GCM under a nonce of its own, bound to its function and name.
//! So the registry's file contains no values, and a record that is put in another's place cannot be
//! opened. The key is in a file of its own beside the registry. Opened secrets are in memory that
//! is zeroed ([`faasw_pool::Secrets`]).

mod bound;

use std::{fmt, sync::Arc};

use faasw_client::{FunctionName, SecretInfo, SecretName};
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom as _, SystemRandom},
};
use thiserror::Error;
use zeroize::{Zeroize as _, Zeroizing};

pub(crate) use self::bound::{BoundSecrets, HeadWithSecrets, SecretFillError, TOKEN};

/// The length of the key in bytes.
pub(crate) const KEY: usize = 32;

/// Binds a record to its purpose, besides its function and name.
const PURPOSE: &[u8] = b"faasw secret 1";

const WRONG_KEY: &str = "they were encrypted with another key: restore that key, or remove all \
     secrets and set them again";

/// Why a secret cannot be sealed or opened.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum SealError {
    #[error("{0}")]
    NoKey(Arc<str>),
    #[error(
        "the secret {0} cannot be decrypted: the key is another one, or the record is damaged; \
         restore the key, or set the secret again"
    )]
    Unopened(SecretName),
    #[error("the system returned no random bytes")]
    NoNonce,
}

/// Seals and opens secrets.
pub(crate) struct Vault {
    key: Result<LessSafeKey, Arc<str>>,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vault")
    }
}

impl Vault {
    /// Creates a vault with this key, or with the reason why there is none.
    pub(crate) fn new(key: Result<Zeroizing<[u8; KEY]>, String>) -> Self {
        let key = key.map_err(Arc::from).and_then(|key| {
            let key = UnboundKey::new(&AES_256_GCM, &*key);
            key.map(LessSafeKey::new)
                .map_err(|_| Arc::from("the key of secrets has the wrong size"))
        });
        Self { key }
    }

    /// Keeps the key if it opens any of these samples, or if there are none. Otherwise replaces it
    /// by the reason why it is not used: secrets that are sealed with it now could not be opened
    /// once the samples' key is back.
    pub(crate) fn checked_with(mut self, samples: &[(SecretInfo, Vec<u8>)]) -> Self {
        let opens = |(info, sealed): &(SecretInfo, Vec<u8>)| {
            self.open(&info.function, &info.name, sealed).is_ok()
        };
        if self.key.is_ok() && !samples.is_empty() && !samples.iter().any(opens) {
            self.key = Err(Arc::from(WRONG_KEY));
        }
        if let Err(why) = &self.key
            && !samples.is_empty()
        {
            tracing::error!("functions' secrets cannot be read: {why}");
        }
        self
    }

    fn key(&self) -> Result<&LessSafeKey, SealError> {
        self.key
            .as_ref()
            .map_err(|why| SealError::NoKey(why.clone()))
    }

    /// Seals a value for storage.
    ///
    /// # Errors
    /// Returns [`SealError::NoKey`] if there is no key, and [`SealError::NoNonce`] if the kernel
    /// provides no random bytes.
    pub(crate) fn seal(
        &self,
        function: &FunctionName,
        name: &SecretName,
        value: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let key = self.key()?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new()
            .fill(&mut nonce)
            .map_err(|_| SealError::NoNonce)?;
        // The capacity is exact, because growing would leave copies of the value behind.
        let room = NONCE_LEN + value.len() + AES_256_GCM.tag_len();
        let mut sealed = Vec::with_capacity(room);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(value);
        let (_, text) = sealed.split_at_mut(NONCE_LEN);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let bound = Aad::from(bound_to(function, name));
        match key.seal_in_place_separate_tag(nonce, bound, text) {
            Ok(tag) => {
                sealed.extend_from_slice(tag.as_ref());
                Ok(sealed)
            }
            Err(_) => {
                sealed.zeroize();
                Err(SealError::Unopened(name.clone()))
            }
        }
    }

    /// Opens a sealed value.
    ///
    /// # Errors
    /// Returns [`SealError::NoKey`] if there is no key, and [`SealError::Unopened`] if the value
    /// was not sealed with this key for this function and name.
    pub(crate) fn open(
        &self,
        function: &FunctionName,
        name: &SecretName,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let key = self.key()?;
        let unopened = || SealError::Unopened(name.clone());
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN).ok_or_else(unopened)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| unopened())?;
        let mut text = Zeroizing::new(text.to_vec());
        let bound = Aad::from(bound_to(function, name));
        let length = key
            .open_in_place(nonce, bound, &mut text)
            .map_err(|_| unopened())?
            .len();
        text.truncate(length);
        Ok(text)
    }
}

/// Returns the data that a record is bound to. A function's name contains no zero byte.
fn bound_to(function: &FunctionName, name: &SecretName) -> Vec<u8> {
    let parts = [
        PURPOSE,
        function.as_str().as_bytes(),
        name.as_str().as_bytes(),
    ];
    parts.join(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vault(key: u8) -> Vault {
        Vault::new(Ok(Zeroizing::new([key; KEY])))
    }

    fn name(text: &str) -> SecretName {
        SecretName::new(text).unwrap()
    }

    #[test]
    fn a_record_opens_with_its_key_for_its_function_and_name_alone() {
        let (vault, shop) = (vault(1), FunctionName::new("shop").unwrap());
        for value in [&b""[..], b"canary", &[0xff; 5000]] {
            let sealed = vault.seal(&shop, &name("a"), value).unwrap();
            assert!(value.is_empty() || !sealed.windows(value.len()).any(|part| part == value));
            assert_eq!(*vault.open(&shop, &name("a"), &sealed).unwrap(), value);
            let other = FunctionName::new("other").unwrap();
            let refused = Err(SealError::Unopened(name("a")));
            assert_eq!(vault.open(&other, &name("a"), &sealed), refused);
            assert!(vault.open(&shop, &name("b"), &sealed).is_err());
            assert!(
                super::tests::vault(2)
                    .open(&shop, &name("a"), &sealed)
                    .is_err()
            );
            for at in 0..sealed.len().min(64) {
                let mut damaged = sealed.clone();
                damaged[at] ^= 1;
                assert!(vault.open(&shop, &name("a"), &damaged).is_err(), "{at}");
                assert!(
                    vault.open(&shop, &name("a"), &sealed[..at]).is_err(),
                    "{at}"
                );
            }
        }
    }

    #[test]
    fn sealing_a_value_twice_gives_different_records() {
        let (vault, shop) = (vault(1), FunctionName::new("shop").unwrap());
        let [first, second] = [(); 2].map(|()| vault.seal(&shop, &name("a"), b"x").unwrap());
        assert_ne!(first, second);
    }

    #[test]
    fn without_a_key_the_error_gives_the_reason() {
        let vault = Vault::new(Err("secrets.key is damaged".to_owned()));
        let shop = FunctionName::new("shop").unwrap();
        let refused = vault.seal(&shop, &name("a"), b"x").unwrap_err();
        assert_eq!(refused.to_string(), "secrets.key is damaged");
        assert_eq!(vault.open(&shop, &name("a"), &[0; 64]), Err(refused));
        assert_eq!(format!("{vault:?}"), "Vault");
    }
}
