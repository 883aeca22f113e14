//! Secrets: what a function receives only together with its requests.
//!
//! The node puts them into the mailbox of a request's microVM before the request begins, and wipes
//! them there with everything else of the request. No seed and no image contains them, so no guest
//! has them before it has a request.

use std::fmt;
use std::io;
use std::sync::Arc;

use faasw_abi::secrets::{SECRETS_MAX, encode, encoded_len, find};
use memmap2::{Advice, MmapMut};
use zeroize::Zeroize as _;

/// Names and values of a function's secrets, in the encoding of a mailbox. Clones share the same
/// memory. It is excluded from core files, stays out of swap where the system allows that, and is
/// zeroed when the last clone is dropped.
#[derive(Clone)]
pub struct Secrets(Arc<Pages>);

struct Pages(MmapMut);

impl Secrets {
    /// Encodes these secrets.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] if they take more than [`SECRETS_MAX`] bytes, and an
    /// error of the operating system if memory for them cannot be mapped or excluded from core
    /// files.
    pub fn new(secrets: &[(&[u8], &[u8])]) -> io::Result<Self> {
        let length = encoded_len(secrets);
        if length > SECRETS_MAX {
            let what = format!("its secrets take {length} bytes, more than {SECRETS_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut pages = MmapMut::map_anon(length)?;
        pages.advise(Advice::DontDump)?;
        if let Err(error) = pages.lock() {
            // The system may allow fewer locked pages than there are functions with secrets.
            tracing::warn!(%error, "a function's secrets may be written to swap");
        }
        let mut spelled = encode(secrets);
        pages.copy_from_slice(&spelled);
        spelled.zeroize();
        Ok(Self(Arc::new(Pages(pages))))
    }

    /// Returns the value of the secret with this name, if there is one.
    #[must_use]
    pub fn value(&self, name: &[u8]) -> Option<&[u8]> {
        find(self.bytes(), name)
    }

    /// Returns the encoded secrets, see [`faasw_abi::secrets`].
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0.0
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faasw_abi::secrets::decode;

    #[test]
    fn secrets_are_encoded_once_and_debug_output_never_contains_one() {
        let secrets = Secrets::new(&[(b"key", b"canary"), (b"other", b"")]).unwrap();
        let told = decode(secrets.clone().bytes()).unwrap();
        assert_eq!(told[0], (b"key".to_vec(), b"canary".to_vec()));
        assert_eq!(told.len(), 2);
        assert_eq!(secrets.value(b"key"), Some(&b"canary"[..]));
        assert_eq!(secrets.value(b"canary"), None);
        assert_eq!(format!("{secrets:?}"), "Secrets");
        assert!(
            decode(Secrets::new(&[]).unwrap().bytes())
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn secrets_larger_than_a_head_are_rejected() {
        let large = vec![b'x'; SECRETS_MAX - 12 - 1];
        assert!(Secrets::new(&[(b"k", &large)]).is_ok());
        let larger = vec![b'x'; SECRETS_MAX - 12];
        let refused = Secrets::new(&[(b"k", &larger)]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
