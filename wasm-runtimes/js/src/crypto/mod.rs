//! Cryptographic primitives for `web/crypto.js` and `web/subtle.js`.
//!
//! All functions take and return bytes. A function returns `None` if its input is invalid; the
//! caller chooses the `DOMException`. Keys have one form each: secret keys are their bytes, and RSA
//! keys are PKCS #1 structures in DER. Private keys of elliptic curves are their scalars or seeds,
//! and public ones are points as the `raw` format has them.
//!
//! Random numbers come from [`SystemRandom`] only, which asks the host at each use.

mod aes;
mod curve25519;
mod derive;
mod digest;
mod elliptic;
mod functions;
mod rsa;
mod system_random;

pub(crate) use digest::{digest, hmac, is_hmac};
pub(crate) use functions::functions;
use system_random::SystemRandom;

/// Runs an expression with the hash function of that name of the Web Cryptography API as a type.
/// Returns `None` for other names.
macro_rules! with_hash {
    ($name:expr, $Hash:ident => $run:expr) => {
        match $name {
            "SHA-1" => {
                type $Hash = sha1::Sha1;
                Some($run)
            }
            "SHA-256" => {
                type $Hash = sha2::Sha256;
                Some($run)
            }
            "SHA-384" => {
                type $Hash = sha2::Sha384;
                Some($run)
            }
            "SHA-512" => {
                type $Hash = sha2::Sha512;
                Some($run)
            }
            _ => None,
        }
    };
}
use with_hash;
