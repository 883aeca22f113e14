//! Digests, HMAC and AES-GCM, for `web/crypto.js`.

use aes_gcm::{
    Aes128Gcm, Aes256Gcm, AesGcm, Nonce,
    aead::{Aead, KeyInit, Payload, consts::U12},
    aes::Aes192,
};
use hmac::{Hmac, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};

/// Returns the digest with that name of the Web Cryptography API.
pub(crate) fn digest(name: &str, data: &[u8]) -> Option<Vec<u8>> {
    Some(match name {
        "SHA-1" => Sha1::digest(data).to_vec(),
        "SHA-256" => Sha256::digest(data).to_vec(),
        "SHA-384" => Sha384::digest(data).to_vec(),
        "SHA-512" => Sha512::digest(data).to_vec(),
        _ => return None,
    })
}

fn mac<M: Mac + hmac::KeyInit>(key: &[u8], data: &[u8]) -> Option<M> {
    let mut mac = <M as hmac::KeyInit>::new_from_slice(key).ok()?;
    mac.update(data);
    Some(mac)
}

/// Returns the message authentication code.
pub(crate) fn hmac(name: &str, key: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    Some(match name {
        "SHA-1" => mac::<Hmac<Sha1>>(key, data)?
            .finalize()
            .into_bytes()
            .to_vec(),
        "SHA-256" => mac::<Hmac<Sha256>>(key, data)?
            .finalize()
            .into_bytes()
            .to_vec(),
        "SHA-384" => mac::<Hmac<Sha384>>(key, data)?
            .finalize()
            .into_bytes()
            .to_vec(),
        "SHA-512" => mac::<Hmac<Sha512>>(key, data)?
            .finalize()
            .into_bytes()
            .to_vec(),
        _ => return None,
    })
}

/// Returns whether `code` is the message authentication code, in constant time.
pub(crate) fn is_hmac(name: &str, key: &[u8], data: &[u8], code: &[u8]) -> bool {
    let is_it = match name {
        "SHA-1" => mac::<Hmac<Sha1>>(key, data).map(|mac| mac.verify_slice(code)),
        "SHA-256" => mac::<Hmac<Sha256>>(key, data).map(|mac| mac.verify_slice(code)),
        "SHA-384" => mac::<Hmac<Sha384>>(key, data).map(|mac| mac.verify_slice(code)),
        "SHA-512" => mac::<Hmac<Sha512>>(key, data).map(|mac| mac.verify_slice(code)),
        _ => None,
    };
    is_it.is_some_and(|is_it| is_it.is_ok())
}

fn with_key<T>(
    key: &[u8],
    iv: &[u8],
    run: impl FnOnce(&dyn Gcm, &Nonce<U12>) -> Option<T>,
) -> Option<T> {
    let iv: &[u8; 12] = iv.try_into().ok()?;
    let iv = Nonce::<U12>::from(*iv);
    match key.len() {
        16 => run(&Aes128Gcm::new_from_slice(key).ok()?, &iv),
        24 => run(&AesGcm::<Aes192, U12>::new_from_slice(key).ok()?, &iv),
        32 => run(&Aes256Gcm::new_from_slice(key).ok()?, &iv),
        _ => None,
    }
}

trait Gcm {
    fn seal(&self, iv: &Nonce<U12>, payload: Payload<'_, '_>) -> Option<Vec<u8>>;
    fn open(&self, iv: &Nonce<U12>, payload: Payload<'_, '_>) -> Option<Vec<u8>>;
}

impl<T: Aead<NonceSize = U12>> Gcm for T {
    fn seal(&self, iv: &Nonce<U12>, payload: Payload<'_, '_>) -> Option<Vec<u8>> {
        self.encrypt(iv, payload).ok()
    }

    fn open(&self, iv: &Nonce<U12>, payload: Payload<'_, '_>) -> Option<Vec<u8>> {
        self.decrypt(iv, payload).ok()
    }
}

/// Encrypts. The result is the ciphertext and its tag of 128 bits.
pub(crate) fn seal(key: &[u8], iv: &[u8], beside: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let payload = Payload {
        msg: data,
        aad: beside,
    };
    with_key(key, iv, |gcm, iv| gcm.seal(iv, payload))
}

/// Decrypts. Returns `None` if the tag does not match.
pub(crate) fn open(key: &[u8], iv: &[u8], beside: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let payload = Payload {
        msg: data,
        aad: beside,
    };
    with_key(key, iv, |gcm, iv| gcm.open(iv, payload))
}
