//! RSA (RFC 8017): keys, signatures and encryption.

use pkcs8::{
    DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey,
    der::{Decode, asn1::UintRef},
};
use rsa::{
    BoxedUint, Oaep, Pkcs1v15Sign, PrivateKey, Pss, PublicKey,
    pkcs1::{
        self, DecodeRsaPrivateKey, DecodeRsaPublicKey, EncodeRsaPrivateKey, EncodeRsaPublicKey,
    },
};

use super::{SystemRandom, digest, with_hash};

/// The sizes of keys, in bits.
const SIZES: std::ops::RangeInclusive<usize> = 1024..=8192;

/// The longest salt of RSA-PSS, in bytes: the largest key has room for fewer.
const MOST_SALT: usize = 1024;

/// Returns the number of bits of a big-endian number, without leading zeros.
fn bit_length(number: &[u8]) -> usize {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros).map_or(0, |first| {
        (number.len() - zeros) * 8 - first.leading_zeros() as usize
    })
}

fn number(bytes: &[u8]) -> Option<BoxedUint> {
    let bits = u32::try_from(bytes.len().checked_mul(8)?).ok()?;
    BoxedUint::from_be_slice(bytes, bits.max(64).next_multiple_of(64)).ok()
}

fn private(der: &[u8]) -> Option<PrivateKey> {
    PrivateKey::from_pkcs1_der(der).ok()
}

fn public(der: &[u8]) -> Option<PublicKey> {
    PublicKey::from_pkcs1_der(der).ok()
}

fn der_of_private(key: &PrivateKey) -> Option<Vec<u8>> {
    Some(key.to_pkcs1_der().ok()?.as_bytes().to_vec())
}

fn der_of_public(key: &PublicKey) -> Option<Vec<u8>> {
    Some(key.to_pkcs1_der().ok()?.as_bytes().to_vec())
}

/// Returns a new private key.
pub(crate) fn generate(bits: usize, exponent: &[u8]) -> Option<Vec<u8>> {
    if !SIZES.contains(&bits) {
        return None;
    }
    // With another exponent no primes fit, and the search would not end.
    let value = exponent.iter().try_fold(0_u64, |value, byte| {
        value.checked_mul(256)?.checked_add(u64::from(*byte))
    })?;
    if value < 3 || value % 2 == 0 || value > PublicKey::MAX_PUB_EXPONENT {
        return None;
    }
    let exponent = BoxedUint::from(value);
    der_of_private(&PrivateKey::new_with_exp(&mut SystemRandom, bits, exponent).ok()?)
}

/// Returns the public key of a private one.
pub(crate) fn public_of(der: &[u8]) -> Option<Vec<u8>> {
    der_of_public(private(der)?.as_public_key())
}

/// Returns the public key with this modulus and exponent.
pub(crate) fn public_from(modulus: &[u8], exponent: &[u8]) -> Option<Vec<u8>> {
    der_of_public(&PublicKey::new(number(modulus)?, number(exponent)?).ok()?)
}

/// Returns the private key with these numbers: modulus, public exponent, private exponent, and both
/// primes. Returns `None` without primes, because the computation of primes by the crate `rsa`
/// panics on some invalid numbers.
pub(crate) fn private_from(numbers: &[&[u8]]) -> Option<Vec<u8>> {
    let [modulus, _, secret, first, second] = numbers else {
        return None;
    };
    let size = bit_length(modulus);
    let is_odd = modulus.last().is_some_and(|byte| byte % 2 == 1);
    if !SIZES.contains(&size) || !is_odd || bit_length(secret) < 2 {
        return None;
    }
    if bit_length(first) > size || bit_length(second) > size {
        return None;
    }
    let numbers: Option<Vec<_>> = numbers.iter().map(|bytes| number(bytes)).collect();
    let mut numbers = numbers?.into_iter();
    let (modulus, exponent, secret) = (numbers.next()?, numbers.next()?, numbers.next()?);
    der_of_private(&PrivateKey::from_components(modulus, exponent, secret, numbers.collect()).ok()?)
}

/// Returns the numbers of a public key: n, e.
pub(crate) fn numbers_of_public(der: &[u8]) -> Option<Vec<Vec<u8>>> {
    let key = pkcs1::RsaPublicKey::from_der(der).ok()?;
    let numbers: [UintRef<'_>; 2] = [key.modulus, key.public_exponent];
    Some(
        numbers
            .iter()
            .map(|number| number.as_bytes().to_vec())
            .collect(),
    )
}

/// Returns the numbers of a private key as RFC 7518 orders them: n, e, d, p, q, dp, dq, qi.
pub(crate) fn numbers_of_private(der: &[u8]) -> Option<Vec<Vec<u8>>> {
    let key = pkcs1::RsaPrivateKey::from_der(der).ok()?;
    let numbers: [UintRef<'_>; 8] = [
        key.modulus,
        key.public_exponent,
        key.private_exponent,
        key.prime1,
        key.prime2,
        key.exponent1,
        key.exponent2,
        key.coefficient,
    ];
    Some(
        numbers
            .iter()
            .map(|number| number.as_bytes().to_vec())
            .collect(),
    )
}

/// Returns the private key in a PKCS #8 structure.
pub(crate) fn from_pkcs8(der: &[u8]) -> Option<Vec<u8>> {
    der_of_private(&PrivateKey::from_pkcs8_der(der).ok()?)
}

/// Returns a private key as a PKCS #8 structure.
pub(crate) fn to_pkcs8(der: &[u8]) -> Option<Vec<u8>> {
    Some(private(der)?.to_pkcs8_der().ok()?.as_bytes().to_vec())
}

/// Returns the public key in a `SubjectPublicKeyInfo`.
pub(crate) fn from_spki(der: &[u8]) -> Option<Vec<u8>> {
    der_of_public(&PublicKey::from_public_key_der(der).ok()?)
}

/// Returns a public key as a `SubjectPublicKeyInfo`.
pub(crate) fn to_spki(der: &[u8]) -> Option<Vec<u8>> {
    Some(public(der)?.to_public_key_der().ok()?.as_bytes().to_vec())
}

/// Signs with RSASSA-PKCS1-v1_5, or with RSA-PSS if there is a length of its salt in bytes.
pub(crate) fn sign(hash: &str, der: &[u8], salt: Option<usize>, data: &[u8]) -> Option<Vec<u8>> {
    if salt.is_some_and(|length| length > MOST_SALT) {
        return None;
    }
    let key = private(der)?;
    let hashed = digest(hash, data)?;
    let signature = with_hash!(hash, Hash => match salt {
        None => key.sign_with_rng(&mut SystemRandom, Pkcs1v15Sign::new::<Hash>(), &hashed),
        Some(length) => {
            let scheme = Pss::<Hash>::new_with_salt(length);
            key.sign_with_rng(&mut SystemRandom, scheme, &hashed)
        }
    })?;
    signature.ok()
}

/// Returns whether the signature is one of these schemes.
pub(crate) fn is_signed(
    hash: &str,
    der: &[u8],
    salt: Option<usize>,
    signature: &[u8],
    data: &[u8],
) -> bool {
    // A longer salt would overflow the lengths that the crate `rsa` computes.
    if salt.is_some_and(|length| length > MOST_SALT) {
        return false;
    }
    let verified = || {
        let key = public(der)?;
        let hashed = digest(hash, data)?;
        with_hash!(hash, Hash => match salt {
            None => key.verify(Pkcs1v15Sign::new::<Hash>(), &hashed, signature),
            Some(length) => key.verify(Pss::<Hash>::new_with_salt(length), &hashed, signature),
        })
    };
    verified().is_some_and(|verified| verified.is_ok())
}

/// Encrypts with RSA-OAEP.
pub(crate) fn encrypt(hash: &str, der: &[u8], label: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let key = public(der)?;
    let encrypted = with_hash!(hash, Hash => {
        key.encrypt(&mut SystemRandom, Oaep::<Hash>::new_with_label(label), data)
    })?;
    encrypted.ok()
}

/// Decrypts with RSA-OAEP.
pub(crate) fn decrypt(hash: &str, der: &[u8], label: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let key = private(der)?;
    let decrypted = with_hash!(hash, Hash => {
        key.decrypt_blinded(&mut SystemRandom, Oaep::<Hash>::new_with_label(label), data)
    })?;
    decrypted.ok()
}
