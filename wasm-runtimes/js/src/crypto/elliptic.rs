//! ECDSA and ECDH over the curves of NIST (FIPS 186-5), and the containers of their keys (RFC 5480,
//! RFC 5915).

use p256::elliptic_curve::{ecdh::diffie_hellman, sec1::ToSec1Point};
use pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey};
use signature::hazmat::{PrehashSigner, PrehashVerifier};

use super::{SystemRandom, digest};

/// Runs an expression with the crate of the curve of that name. Returns `None` for other names.
macro_rules! with_curve {
    ($name:expr, $curve:ident => $run:expr) => {
        match $name {
            "P-256" => {
                use p256 as $curve;
                $run
            }
            "P-384" => {
                use p384 as $curve;
                $run
            }
            "P-521" => {
                use p521 as $curve;
                $run
            }
            _ => None,
        }
    };
}

/// Returns a new private key.
pub(crate) fn generate(name: &str) -> Option<Vec<u8>> {
    use p256::elliptic_curve::Generate;
    with_curve!(name, curve => {
        let key = curve::SecretKey::try_generate_from_rng(&mut SystemRandom).ok()?;
        Some(key.to_bytes().to_vec())
    })
}

/// Returns the public key of a private one.
pub(crate) fn public_of(name: &str, private: &[u8]) -> Option<Vec<u8>> {
    with_curve!(name, curve => {
        let key = curve::SecretKey::from_slice(private).ok()?;
        Some(key.public_key().to_sec1_point(false).as_bytes().to_vec())
    })
}

/// Returns a point, which may be compressed, in its uncompressed form. Returns `None` if it is not
/// on the curve.
pub(crate) fn point(name: &str, point: &[u8]) -> Option<Vec<u8>> {
    with_curve!(name, curve => {
        let key = curve::PublicKey::from_sec1_bytes(point).ok()?;
        Some(key.to_sec1_point(false).as_bytes().to_vec())
    })
}

/// Returns the digest as ECDSA takes it: at least as long as a scalar. Zeros before a number do not
/// change it.
fn prehash(hash: &str, data: &[u8], scalar: usize) -> Option<Vec<u8>> {
    let digest = digest(hash, data)?;
    let mut padded = vec![0; scalar.saturating_sub(digest.len())];
    padded.extend_from_slice(&digest);
    Some(padded)
}

/// Signs with ECDSA. The nonce is derived from key and message (RFC 6979).
pub(crate) fn sign(name: &str, hash: &str, private: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    with_curve!(name, curve => {
        let key = curve::ecdsa::SigningKey::from_slice(private).ok()?;
        let hashed = prehash(hash, data, private.len())?;
        let signature: curve::ecdsa::Signature = key.sign_prehash(&hashed).ok()?;
        Some(signature.to_bytes().to_vec())
    })
}

/// Returns whether the signature is one of ECDSA.
pub(crate) fn is_signed(
    name: &str,
    hash: &str,
    public: &[u8],
    signature: &[u8],
    data: &[u8],
) -> bool {
    let is_it = with_curve!(name, curve => (|| {
        let key = curve::ecdsa::VerifyingKey::from_sec1_bytes(public).ok()?;
        let signature = curve::ecdsa::Signature::from_slice(signature).ok()?;
        let hashed = prehash(hash, data, public.len() / 2)?;
        key.verify_prehash(&hashed, &signature).ok()
    })());
    is_it.is_some()
}

/// Returns the shared secret of ECDH: the x coordinate.
pub(crate) fn agree(name: &str, private: &[u8], public: &[u8]) -> Option<Vec<u8>> {
    with_curve!(name, curve => {
        let private = curve::SecretKey::from_slice(private).ok()?;
        let public = curve::PublicKey::from_sec1_bytes(public).ok()?;
        let secret = diffie_hellman(private.to_nonzero_scalar(), public.as_affine());
        Some(secret.raw_secret_bytes().to_vec())
    })
}

/// Returns the private key in a PKCS #8 structure.
pub(crate) fn from_pkcs8(name: &str, der: &[u8]) -> Option<Vec<u8>> {
    with_curve!(name, curve => {
        Some(curve::SecretKey::from_pkcs8_der(der).ok()?.to_bytes().to_vec())
    })
}

/// Returns a private key as a PKCS #8 structure.
pub(crate) fn to_pkcs8(name: &str, private: &[u8]) -> Option<Vec<u8>> {
    with_curve!(name, curve => {
        let key = curve::SecretKey::from_slice(private).ok()?;
        Some(key.to_pkcs8_der().ok()?.as_bytes().to_vec())
    })
}

/// Returns the public key in a `SubjectPublicKeyInfo`.
pub(crate) fn from_spki(name: &str, der: &[u8]) -> Option<Vec<u8>> {
    with_curve!(name, curve => {
        let key = curve::PublicKey::from_public_key_der(der).ok()?;
        Some(key.to_sec1_point(false).as_bytes().to_vec())
    })
}

/// Returns a public key as a `SubjectPublicKeyInfo`.
pub(crate) fn to_spki(name: &str, public: &[u8]) -> Option<Vec<u8>> {
    with_curve!(name, curve => {
        let key = curve::PublicKey::from_sec1_bytes(public).ok()?;
        Some(key.to_public_key_der().ok()?.as_bytes().to_vec())
    })
}
