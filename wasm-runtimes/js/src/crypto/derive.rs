//! Derivation of keys from passwords and other secrets.

use pbkdf2::pbkdf2_hmac;
use sha2::Digest;

use super::with_hash;

/// Returns `length` zeros, or `None` if there is no memory for them.
fn zeros(length: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    out.try_reserve_exact(length).ok()?;
    out.resize(length, 0);
    Some(out)
}

/// Returns `length` bytes by PBKDF2 with HMAC.
pub(crate) fn pbkdf2(
    name: &str,
    password: &[u8],
    salt: &[u8],
    rounds: u32,
    length: usize,
) -> Option<Vec<u8>> {
    let mut out = zeros(length)?;
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
    let most = with_hash!(name, Hash => 255 * <Hash as Digest>::output_size())?;
    if length > most {
        return None;
    }
    let mut out = zeros(length)?;
    with_hash!(name, Hash => {
        hkdf::Hkdf::<Hash>::new(Some(salt), secret).expand(info, &mut out).ok()?
    })?;
    Some(out)
}

/// Returns `length` bytes by scrypt. The numbers are the cost, which is a power of two, the size of
/// blocks, the parallelisation, and the most bytes of memory. Returns `None` if more memory is
/// needed.
pub(crate) fn scrypt(
    password: &[u8],
    salt: &[u8],
    numbers: &[u32],
    length: usize,
) -> Option<Vec<u8>> {
    let [cost, block, parallel, most_memory] = *numbers else {
        return None;
    };
    let piece = 128 * u64::from(block);
    let blocks = piece.checked_mul(u64::from(parallel))?;
    let table = piece.checked_mul(u64::from(cost))?;
    if !cost.is_power_of_two() || blocks.checked_add(table)? > u64::from(most_memory) {
        return None;
    }
    let params = scrypt::Params::new(cost.ilog2() as u8, block, parallel).ok()?;
    let mut out = zeros(length)?;
    scrypt::scrypt(password, salt, &params, &mut out).ok()?;
    Some(out)
}
