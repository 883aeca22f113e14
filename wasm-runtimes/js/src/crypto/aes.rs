//! The modes of AES: GCM (NIST SP 800-38D), CBC and CTR (SP 800-38A), and KW (RFC 3394).

use aes::{
    Aes128, Aes192, Aes256,
    cipher::{
        Array, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, InnerIvInit, KeyInit,
        StreamCipher, block_padding::Pkcs7, consts::U16,
    },
};
use aes_kw::{AesKw, InnerInit};
use cmov::CmovEq;
use ghash::{GHash, universal_hash::UniversalHash};

const BLOCK: usize = 16;

type Block = Array<u8, U16>;

/// Runs an expression with the cipher for a key of that length. Returns `None` for other lengths.
macro_rules! with_cipher {
    ($key:expr, $cipher:ident => $run:expr) => {
        match $key.len() {
            16 => {
                let $cipher = Aes128::new_from_slice($key).ok()?;
                $run
            }
            24 => {
                let $cipher = Aes192::new_from_slice($key).ok()?;
                $run
            }
            32 => {
                let $cipher = Aes256::new_from_slice($key).ok()?;
                $run
            }
            _ => None,
        }
    };
}

/// Encrypts with GCM. The result is the ciphertext and its tag of `tag` bytes. An IV has any length
/// but zero.
pub(crate) fn seal(
    key: &[u8],
    iv: &[u8],
    beside: &[u8],
    data: &[u8],
    tag: usize,
) -> Option<Vec<u8>> {
    with_cipher!(key, cipher => {
        let gcm = Gcm::new(&cipher, iv)?;
        let mut out = data.to_vec();
        gcm.apply_keystream(&mut out);
        let computed = gcm.tag(beside, &out);
        out.extend_from_slice(computed.get(..tag)?);
        Some(out)
    })
}

/// Decrypts with GCM. Returns `None` if the tag, of `tag` bytes, does not match.
pub(crate) fn open(
    key: &[u8],
    iv: &[u8],
    beside: &[u8],
    data: &[u8],
    tag: usize,
) -> Option<Vec<u8>> {
    let (sealed, given) = data.split_at_checked(data.len().checked_sub(tag)?)?;
    with_cipher!(key, cipher => {
        let gcm = Gcm::new(&cipher, iv)?;
        let computed = gcm.tag(beside, sealed);
        let mut is_same = 0;
        computed.get(..tag)?.cmoveq(given, 1, &mut is_same);
        if is_same == 0 {
            return None;
        }
        let mut out = sealed.to_vec();
        gcm.apply_keystream(&mut out);
        Some(out)
    })
}

struct Gcm<'a, C> {
    cipher: &'a C,
    hash: GHash,
    /// The first counter block, which encrypts the tag.
    first: Block,
}

impl<'a, C: BlockCipherEncrypt<BlockSize = U16>> Gcm<'a, C> {
    fn new(cipher: &'a C, iv: &[u8]) -> Option<Self> {
        let mut hash_key = Block::default();
        cipher.encrypt_block(&mut hash_key);
        let hash = GHash::new(&hash_key);
        let mut first = Block::default();
        if iv.is_empty() {
            return None;
        } else if let Some(begin) = first.get_mut(..12).filter(|begin| begin.len() == iv.len()) {
            begin.copy_from_slice(iv);
            *first.last_mut()? = 1;
        } else {
            let mut hash = hash.clone();
            hash.update_padded(iv);
            hash.update(&[lengths(0, iv.len())]);
            first = hash.finalize();
        }
        Some(Self {
            cipher,
            hash,
            first,
        })
    }

    fn apply_keystream(&self, data: &mut [u8]) {
        let [.., a, b, c, d] = self.first.0;
        let next = u32::from_be_bytes([a, b, c, d]).wrapping_add(1);
        let mut counter = self.first;
        counter[12..].copy_from_slice(&next.to_be_bytes());
        let core = ctr::CtrCore::<&C, ctr::flavors::Ctr32BE>::inner_iv_init(self.cipher, &counter);
        aes::cipher::StreamCipherCoreWrapper::from_core(core).apply_keystream(data);
    }

    fn tag(&self, beside: &[u8], sealed: &[u8]) -> Block {
        let mut hash = self.hash.clone();
        hash.update_padded(beside);
        hash.update_padded(sealed);
        hash.update(&[lengths(beside.len(), sealed.len())]);
        let mut tag = self.first;
        self.cipher.encrypt_block(&mut tag);
        for (byte, hashed) in tag.iter_mut().zip(hash.finalize()) {
            *byte ^= hashed;
        }
        tag
    }
}

/// Returns the block that ends what GHASH hashes: both lengths in bits.
fn lengths(first: usize, second: usize) -> Block {
    let bits = |bytes: usize| (bytes as u128) * 8;
    Block::from(((bits(first) << 64) | bits(second)).to_be_bytes())
}

/// Encrypts with CBC and the padding of PKCS #7.
pub(crate) fn encrypt_cbc(key: &[u8], iv: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let iv = Block::try_from(iv).ok()?;
    with_cipher!(key, cipher => {
        Some(cbc::Encryptor::inner_iv_init(cipher, &iv).encrypt_padded_vec::<Pkcs7>(data))
    })
}

/// Decrypts with CBC. Returns `None` if the padding is wrong.
pub(crate) fn decrypt_cbc(key: &[u8], iv: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let iv = Block::try_from(iv).ok()?;
    with_cipher!(key, cipher => {
        cbc::Decryptor::inner_iv_init(cipher, &iv).decrypt_padded_vec::<Pkcs7>(data).ok()
    })
}

/// Encrypts or decrypts with CTR. The counter is the last `bits` bits of the block. Returns `None`
/// if it would take a value twice.
pub(crate) fn ctr(key: &[u8], counter: &[u8], bits: u32, data: &[u8]) -> Option<Vec<u8>> {
    let counter = u128::from_be_bytes(counter.try_into().ok()?);
    let mask = match bits {
        1..=127 => (1_u128 << bits) - 1,
        128 => u128::MAX,
        _ => return None,
    };
    if data.len().div_ceil(BLOCK) as u128 > mask.saturating_add(1) {
        return None;
    }
    let mut out = data.to_vec();
    // After its last value the counter is zero, without a carry to the rest of the block.
    let until_zero = (mask - (counter & mask)).saturating_add(1);
    let until_zero = usize::try_from(until_zero)
        .unwrap_or(usize::MAX)
        .saturating_mul(BLOCK);
    let (before, behind) = out.split_at_mut(until_zero.min(data.len()));
    with_cipher!(key, cipher => {
        for (counter, part) in [(counter, before), (counter & !mask, behind)] {
            let counter = Block::from(counter.to_be_bytes());
            type Flavor = ctr::flavors::Ctr128BE;
            let core = ctr::CtrCore::<_, Flavor>::inner_iv_init(cipher.clone(), &counter);
            aes::cipher::StreamCipherCoreWrapper::from_core(core).apply_keystream(part);
        }
        Some(())
    })?;
    Some(out)
}

/// Wraps a key, whose length is a multiple of 8 bytes and at least 16.
pub(crate) fn wrap(key: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    if data.len() < BLOCK {
        return None;
    }
    let mut out = vec![0; data.len() + 8];
    with_cipher!(key, cipher => {
        let kw = AesKw::inner_init(cipher);
        Some(kw.wrap_key(data, &mut out).ok()?.len())
    })?;
    Some(out)
}

/// Unwraps a key. Returns `None` if it was not wrapped with this key.
pub(crate) fn unwrap(key: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![
        0;
        data.len()
            .checked_sub(8)
            .filter(|length| *length >= BLOCK)?
    ];
    with_cipher!(key, cipher => {
        let kw = AesKw::inner_init(cipher);
        Some(kw.unwrap_key(data, &mut out).ok()?.len())
    })?;
    Some(out)
}
