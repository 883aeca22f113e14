//! A function's secrets, which arrive with an invocation.
//!
//! Secrets are no part of a function version, its seed or its image; these hold names only
//! ([`SeedConfig::secrets`](crate::wire::SeedConfig::secrets)). The values are put into the mailbox
//! before a request begins, on [`Channel::SECRETS`](crate::channel::Channel::SECRETS), and are
//! wiped with it.

use alloc::vec::Vec;

use crate::wire::{Pair, Reader, WireError, Writer};

/// Maximum bytes of one secret.
pub const VALUE_MAX: usize = 16 << 10;

/// Maximum encoded bytes of all names and values of a function's secrets together: they are one
/// head of a message.
pub const SECRETS_MAX: usize = 48 << 10;

/// Returns the encoded length of these names and values.
#[must_use]
pub fn encoded_len(secrets: &[(&[u8], &[u8])]) -> usize {
    let lengths = secrets
        .iter()
        .map(|(name, value)| 8 + name.len() + value.len());
    lengths.fold(4, usize::saturating_add)
}

/// Returns the encoded names and values.
#[must_use]
pub fn encode(secrets: &[(&[u8], &[u8])]) -> Vec<u8> {
    // The final capacity is allocated at once, because a vector that grows leaves copies behind.
    let mut writer = Writer::with_capacity(encoded_len(secrets));
    writer.pairs(secrets);
    writer.into_bytes()
}

/// Returns the value for `name` in the encoded list `bytes`. Returns `None` if the name is missing,
/// or if the bytes before it are no such list.
#[must_use]
pub fn find<'a>(bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut reader = Reader::new(bytes);
    let count = reader.count().ok()?;
    for _ in 0..count {
        let (found, value) = (reader.slice().ok()?, reader.slice().ok()?);
        if found == name {
            return Some(value);
        }
    }
    None
}

/// Decodes names and values.
///
/// # Errors
/// Returns a [`WireError`] if `bytes` are not exactly one list.
pub fn decode(bytes: &[u8]) -> Result<Vec<Pair>, WireError> {
    Reader::decode(bytes, Reader::pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::HEAD_MAX;

    const _: () = assert!(SECRETS_MAX as u64 <= HEAD_MAX && VALUE_MAX < SECRETS_MAX);

    #[test]
    fn secrets_survive_the_trip_and_nothing_else_is_taken_for_them() {
        let secrets: [(&[u8], &[u8]); 2] = [(b"key", b"value"), (b"other", &[0xff; 300])];
        let bytes = encode(&secrets);
        for (name, value) in secrets {
            assert_eq!(find(&bytes, name), Some(value));
            assert_eq!(find(&bytes[..bytes.len() - 1], b"other"), None);
        }
        assert_eq!(find(&bytes, b"value"), None);
        assert_eq!(
            (bytes.len(), bytes.capacity()),
            (encoded_len(&secrets), bytes.len())
        );
        let expected = secrets.map(|(name, value)| (name.to_vec(), value.to_vec()));
        assert_eq!(decode(&bytes).unwrap(), expected);
        assert_eq!(decode(&encode(&[])).unwrap(), []);
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), Err(WireError::Truncated));
        }
        let longer = [bytes.as_slice(), b"x"].concat();
        assert_eq!(decode(&longer), Err(WireError::TrailingBytes));
    }
}
