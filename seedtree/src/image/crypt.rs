//! Encryption and authentication of images, against readers and writers of the disk.
//!
//! Each image has a key of its own, which seals each of its parts once, so that a part's number
//! suffices as a nonce (NIST SP 800-38D, section 8.2.1). The image contains that key, sealed by the
//! folder's key.

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use ring::error::Unspecified;
use ring::hkdf::{self, HKDF_SHA256, KeyType, Salt};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::error::ImageError;

/// Bytes of a key.
const KEY: usize = 32;
/// Bytes of the tag that authenticates a part.
pub(super) const TAG: usize = 16;
const NONCE: usize = NONCE_LEN;

/// The key of a folder of images. Its holder can read them, and can make others that are accepted
/// in their place.
pub struct ImageKey {
    seals: LessSafeKey,
    names: hmac::Key,
}

impl fmt::Debug for ImageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ImageKey")
    }
}

/// The output length of HKDF.
struct Bytes;

impl KeyType for Bytes {
    fn len(&self) -> usize {
        KEY
    }
}

impl ImageKey {
    /// Bytes of the secret that a key is derived from.
    pub const BYTES: usize = KEY;

    /// Derives the key from a secret.
    #[must_use]
    pub fn new(secret: &[u8; KEY]) -> Self {
        let derived = Salt::new(HKDF_SHA256, b"faasw images").extract(secret);
        Self {
            seals: aead_key(&expanded(&derived, b"seals")),
            names: hmac::Key::new(hmac::HMAC_SHA256, &expanded(&derived, b"names")),
        }
    }

    /// Returns a new random secret.
    ///
    /// # Errors
    /// Returns [`ImageError::Random`] if the system has no randomness.
    pub fn secret() -> Result<[u8; KEY], ImageError> {
        random()
    }

    /// Returns the name of the image that these parts determine, in this order: 64 digits. The
    /// boundaries between parts are significant. Without the key the name reveals nothing.
    #[must_use]
    pub fn name(&self, parts: &[&[u8]]) -> String {
        let mut context = hmac::Context::with_key(&self.names);
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let name = context.sign();
        name.as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Returns a new image's key, plain and wrapped. `bound` is the data that the wrapped key is
    /// bound to.
    pub(super) fn wrap(&self, bound: &[u8]) -> Result<(DataKey, Wrapped), ImageError> {
        let (nonce, mut key): ([u8; NONCE], [u8; KEY]) = (random()?, random()?);
        let data = DataKey(aead_key(&key));
        let tag = self.seals.seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(bound),
            &mut key,
        );
        let tag = tag.map_err(|_| ImageError::Random)?;
        let tag = bytes_of(&tag);
        Ok((data, Wrapped { nonce, key, tag }))
    }

    /// Returns the key of an image from its wrapped form.
    pub(super) fn unwrap(&self, bound: &[u8], wrapped: Wrapped) -> Result<DataKey, ImageError> {
        let Wrapped {
            nonce,
            mut key,
            tag,
        } = wrapped;
        let opened = self.seals.open_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(bound),
            Tag::from(tag),
            &mut key,
            0..,
        );
        opened.map_err(|Unspecified| ImageError::Key)?;
        Ok(DataKey(aead_key(&key)))
    }
}

/// An image's own key, wrapped for storage in the image.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Wrapped {
    pub(super) nonce: [u8; NONCE],
    pub(super) key: [u8; KEY],
    pub(super) tag: [u8; TAG],
}

impl Wrapped {
    /// The value before a key exists.
    pub(super) const NONE: Self = Self {
        nonce: [0; NONCE],
        key: [0; KEY],
        tag: [0; TAG],
    };
}

/// An image's own key.
pub(super) struct DataKey(LessSafeKey);

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey")
    }
}

impl DataKey {
    /// Seals the image's part with this number, which must not have been sealed before.
    pub(super) fn seal(
        &self,
        number: u64,
        bound: &[u8],
        part: &mut [u8],
    ) -> Result<[u8; TAG], ImageError> {
        let sealed = self
            .0
            .seal_in_place_separate_tag(nonce(number), Aad::from(bound), part);
        sealed
            .map(|tag| bytes_of(&tag))
            .map_err(|Unspecified| ImageError::TooLarge)
    }

    /// Decrypts a part in place, and returns whether it is what was sealed.
    pub(super) fn open(&self, number: u64, bound: &[u8], tag: [u8; TAG], part: &mut [u8]) -> bool {
        let opened = self.0.open_in_place_separate_tag(
            nonce(number),
            Aad::from(bound),
            Tag::from(tag),
            part,
            0..,
        );
        opened.is_ok()
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; NONCE];
    let (begin, _) = nonce.split_at_mut(size_of::<u64>());
    begin.copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[expect(clippy::expect_used, reason = "the length is the algorithm's")]
fn aead_key(bytes: &[u8; KEY]) -> LessSafeKey {
    let key = UnboundKey::new(&AES_256_GCM, bytes);
    LessSafeKey::new(key.expect("AES-256 has keys of 32 bytes"))
}

#[expect(clippy::expect_used, reason = "the length is that of one digest")]
fn expanded(derived: &hkdf::Prk, what: &'static [u8]) -> [u8; KEY] {
    let mut key = [0; KEY];
    let filled = derived
        .expand(&[what], Bytes)
        .and_then(|filled| filled.fill(&mut key));
    filled.expect("HKDF gives 32 bytes");
    key
}

fn bytes_of(tag: &Tag) -> [u8; TAG] {
    let mut bytes = [0; TAG];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

fn random<const N: usize>() -> Result<[u8; N], ImageError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|Unspecified| ImageError::Random)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_part_is_bound_to_key_number_and_context() {
        let key = ImageKey::new(&[7; KEY]);
        let (data, wrapped) = key.wrap(b"here").unwrap();
        let mut part = *b"the same part";
        let sealed = data.seal(3, b"bound", &mut part).unwrap();
        assert_ne!(&part, b"the same part");
        let opens = |data: &DataKey, number, bound: &[u8]| {
            let mut copy = part;
            data.open(number, bound, sealed, &mut copy) && &copy == b"the same part"
        };
        assert!(opens(&data, 3, b"bound"));
        assert!(!opens(&data, 4, b"bound") && !opens(&data, 3, b""));
        let again = key.unwrap(b"here", wrapped).unwrap();
        assert!(opens(&again, 3, b"bound"));
        let (another, _) = key.wrap(b"here").unwrap();
        assert!(!opens(&another, 3, b"bound"));
        let strangers = ImageKey::new(&[8; KEY]);
        assert!(strangers.unwrap(b"here", wrapped).is_err());
        assert!(key.unwrap(b"there", wrapped).is_err());
    }

    #[test]
    fn names_differ_by_their_parts_and_key() {
        let key = ImageKey::new(&[7; KEY]);
        let name = key.name(&[b"ab", b"c"]);
        assert_eq!((name.len(), &name), (64, &key.name(&[b"ab", b"c"])));
        assert_ne!(name, key.name(&[b"a", b"bc"]));
        assert_ne!(name, ImageKey::new(&[8; KEY]).name(&[b"ab", b"c"]));
        assert_ne!(ImageKey::secret().unwrap(), ImageKey::secret().unwrap());
    }
}
