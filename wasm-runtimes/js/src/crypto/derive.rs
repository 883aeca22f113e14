//! Derivation of keys from passwords and other secrets.

use pbkdf2::pbkdf2_hmac;

use super::with_hash;

/// The most memory that scrypt may take, in bytes: Node.js has the same limit.
const MOST_MEMORY: u64 = 32 << 20;

/// Returns `length` bytes by PBKDF2 with HMAC.
pub(crate) fn pbkdf2(
    name: &str,
    password: &[u8],
    salt: &[u8],
    rounds: u32,
    length: usize,
) -> Option<Vec<u8>> {
    let mut out = vec![0; length];
    with_hash!(name, Hash => pbkdf2_hmac::<Hash>(password, salt, rounds, &mut out))?;
    Some(out)
}

/// Returns `length` bytes by HKDF. Returns `None` if there are more than 255 times those of the
/// hash.
pub(crate) fn hkdf(
    name: &str,
    secret: &[u8],
    salt: &[u8],
    info: &[u8],
    length: usize,
) -> Option<Vec<u8>> {
    let mut out = vec![0; length];
    with_hash!(name, Hash => {
        hkdf::Hkdf::<Hash>::new(Some(salt), secret).expand(info, &mut out).ok()?
    })?;
    Some(out)
}

/// Returns `length` bytes by scrypt. `cost` is a power of two.
pub(crate) fn scrypt(
    password: &[u8],
    salt: &[u8],
    cost: u32,
    block: u32,
    parallel: u32,
    length: usize,
) -> Option<Vec<u8>> {
    let is_too_much = 128 * u64::from(cost) * u64::from(block) > MOST_MEMORY;
    if !cost.is_power_of_two() || is_too_much {
        return None;
    }
    let params = scrypt::Params::new(cost.ilog2() as u8, block, parallel).ok()?;
    let mut out = vec![0; length];
    scrypt::scrypt(password, salt, &params, &mut out).ok()?;
    Some(out)
}
