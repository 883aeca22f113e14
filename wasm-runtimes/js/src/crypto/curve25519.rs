//! Ed25519 (RFC 8032) and X25519 (RFC 7748), and their containers (RFC 8410).

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use pkcs8::{
    ObjectIdentifier, PrivateKeyInfoRef,
    der::{Decode, Encode, asn1::OctetStringRef},
    spki::SubjectPublicKeyInfoRef,
};

/// How long keys are, in bytes.
const KEY: usize = 32;

const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const X25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.110");

fn identifier(name: &str) -> Option<ObjectIdentifier> {
    match name {
        "Ed25519" => Some(ED25519),
        "X25519" => Some(X25519),
        _ => None,
    }
}

/// Returns the public key of a private one.
pub(crate) fn public_of(name: &str, private: &[u8]) -> Option<Vec<u8>> {
    let private: [u8; KEY] = private.try_into().ok()?;
    Some(match name {
        "Ed25519" => SigningKey::from_bytes(&private)
            .verifying_key()
            .to_bytes()
            .to_vec(),
        "X25519" => x25519_dalek::x25519(private, x25519_dalek::X25519_BASEPOINT_BYTES).to_vec(),
        _ => return None,
    })
}

/// Signs with Ed25519.
pub(crate) fn sign(private: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let key = SigningKey::from_bytes(private.try_into().ok()?);
    Some(key.sign(data).to_bytes().to_vec())
}

/// Returns whether the signature is one of Ed25519. Public keys and points of small order are
/// rejected.
pub(crate) fn is_signed(public: &[u8], signature: &[u8], data: &[u8]) -> bool {
    let key = public
        .try_into()
        .ok()
        .and_then(|public| VerifyingKey::from_bytes(public).ok());
    let signature = Signature::from_slice(signature).ok();
    key.zip(signature)
        .is_some_and(|(key, signature)| key.verify_strict(data, &signature).is_ok())
}

/// Returns the shared secret of X25519. Returns `None` if it would be all zeros.
pub(crate) fn agree(private: &[u8], public: &[u8]) -> Option<Vec<u8>> {
    let secret = x25519_dalek::x25519(private.try_into().ok()?, public.try_into().ok()?);
    secret
        .iter()
        .any(|byte| *byte != 0)
        .then(|| secret.to_vec())
}

/// Returns the private key in a PKCS #8 structure.
pub(crate) fn from_pkcs8(name: &str, der: &[u8]) -> Option<Vec<u8>> {
    let info = PrivateKeyInfoRef::from_der(der).ok()?;
    if info.algorithm.oid != identifier(name)? || info.algorithm.parameters.is_some() {
        return None;
    }
    let key = <&OctetStringRef>::from_der(info.private_key.as_bytes()).ok()?;
    (key.as_bytes().len() == KEY).then(|| key.as_bytes().to_vec())
}

/// Returns a private key as a PKCS #8 structure.
pub(crate) fn to_pkcs8(name: &str, private: &[u8]) -> Option<Vec<u8>> {
    let key = OctetStringRef::new(private).ok()?.to_der().ok()?;
    let algorithm = pkcs8::AlgorithmIdentifierRef {
        oid: identifier(name)?,
        parameters: None,
    };
    PrivateKeyInfoRef::new(algorithm, OctetStringRef::new(&key).ok()?)
        .to_der()
        .ok()
}

/// Returns the public key in a `SubjectPublicKeyInfo`.
pub(crate) fn from_spki(name: &str, der: &[u8]) -> Option<Vec<u8>> {
    let info = SubjectPublicKeyInfoRef::from_der(der).ok()?;
    if info.algorithm.oid != identifier(name)? || info.algorithm.parameters.is_some() {
        return None;
    }
    let key = info.subject_public_key.as_bytes()?;
    (key.len() == KEY).then(|| key.to_vec())
}

/// Returns a public key as a `SubjectPublicKeyInfo`.
pub(crate) fn to_spki(name: &str, public: &[u8]) -> Option<Vec<u8>> {
    let algorithm = pkcs8::AlgorithmIdentifierRef {
        oid: identifier(name)?,
        parameters: None,
    };
    let info = SubjectPublicKeyInfoRef {
        algorithm,
        subject_public_key: pkcs8::der::asn1::BitStringRef::from_bytes(public).ok()?,
    };
    info.to_der().ok()
}
