//! Digests and HMAC.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Digest;

use super::with_hash;

/// Returns the digest with that name of the Web Cryptography API. Node.js has some more, which
/// `node:crypto` may use.
pub(crate) fn digest(name: &str, data: &[u8]) -> Option<Vec<u8>> {
    match name {
        "MD5" => Some(md5::Md5::digest(data).to_vec()),
        "SHA-224" => Some(sha2::Sha224::digest(data).to_vec()),
        "SHA-512/256" => Some(sha2::Sha512_256::digest(data).to_vec()),
        _ => with_hash!(name, Hash => Hash::digest(data).to_vec()),
    }
}

fn mac<M: Mac + KeyInit>(key: &[u8], data: &[u8]) -> Option<M> {
    let mut mac = <M as KeyInit>::new_from_slice(key).ok()?;
    mac.update(data);
    Some(mac)
}

fn code<M: Mac + KeyInit>(key: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    Some(mac::<M>(key, data)?.finalize().into_bytes().to_vec())
}

/// Returns the message authentication code.
pub(crate) fn hmac(name: &str, key: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    match name {
        "MD5" => code::<Hmac<md5::Md5>>(key, data),
        "SHA-224" => code::<Hmac<sha2::Sha224>>(key, data),
        "SHA-512/256" => code::<Hmac<sha2::Sha512_256>>(key, data),
        _ => with_hash!(name, Hash => code::<Hmac<Hash>>(key, data)?),
    }
}

/// Returns whether `code` is the message authentication code, in constant time.
pub(crate) fn is_hmac(name: &str, key: &[u8], data: &[u8], code: &[u8]) -> bool {
    let is_it = with_hash!(name, Hash => {
        mac::<Hmac<Hash>>(key, data).is_some_and(|mac| mac.verify_slice(code).is_ok())
    });
    is_it.unwrap_or_default()
}
