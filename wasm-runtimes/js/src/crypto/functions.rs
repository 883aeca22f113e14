//! The primitives as functions for JavaScript. They are synchronous, so that `node:crypto` can use
//! them, too. `native.crypto()` makes the object at its first use: few scripts need it.
//!
//! Each takes its bytes as `Uint8Array`s, and returns an `ArrayBuffer`, or `undefined` where the
//! primitive returns `None`.

use rquickjs::{
    ArrayBuffer, Ctx, FromJs, Object, Result, TypedArray, Value,
    function::{Func, Opt},
};

use super::{aes, curve25519, derive, elliptic, rsa};

/// An argument of bytes, borrowed from its array.
struct Bytes<'js>(TypedArray<'js, u8>);

impl<'js> FromJs<'js> for Bytes<'js> {
    fn from_js(ctx: &Ctx<'js>, value: Value<'js>) -> Result<Self> {
        TypedArray::from_js(ctx, value).map(Self)
    }
}

impl AsRef<[u8]> for Bytes<'_> {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: these functions run no JavaScript while they use the bytes, and only JavaScript
        // could change or free the buffer.
        unsafe { self.0.as_bytes() }.unwrap_or_default()
    }
}

type Answer<'js> = Result<Option<ArrayBuffer<'js>>>;

fn answer(ctx: Ctx<'_>, bytes: Option<Vec<u8>>) -> Answer<'_> {
    bytes.map(|bytes| ArrayBuffer::new(ctx, bytes)).transpose()
}

/// Defines functions whose arguments are names, numbers and bytes.
macro_rules! define {
    ($object:ident, $($name:literal: ($($argument:ident: $kind:ty),*) => $run:expr;)*) => {
        $($object.set(
            $name,
            Func::from(|ctx: Ctx<'js>, $($argument: $kind),*| -> Answer<'js> {
                $(let $argument = &$argument;)*
                answer(ctx, $run)
            }),
        )?;)*
    };
}

fn list<'js>(
    ctx: Ctx<'js>,
    numbers: Option<Vec<Vec<u8>>>,
) -> Result<Option<Vec<TypedArray<'js, u8>>>> {
    let Some(numbers) = numbers else {
        return Ok(None);
    };
    let arrays = numbers
        .into_iter()
        .map(|number| TypedArray::new(ctx.clone(), number));
    arrays.collect::<Result<_>>().map(Some)
}

/// Returns a new object of all functions.
pub(crate) fn functions<'js>(ctx: Ctx<'js>) -> Result<Object<'js>> {
    let all = Object::new(ctx)?;
    define! { all,
        "pbkdf2": (
            hash: String, password: Bytes<'js>, salt: Bytes<'js>, rounds: u32, length: usize
        ) =>
            derive::pbkdf2(hash, password.as_ref(), salt.as_ref(), *rounds, *length);
        "hkdf": (
            hash: String, secret: Bytes<'js>, salt: Bytes<'js>, info: Bytes<'js>, length: usize
        ) =>
            derive::hkdf(hash, secret.as_ref(), salt.as_ref(), info.as_ref(), *length);
        "scrypt": (
            password: Bytes<'js>, salt: Bytes<'js>, numbers: Vec<u32>, length: usize
        ) =>
            derive::scrypt(password.as_ref(), salt.as_ref(), numbers, *length);

        "seal": (
            key: Bytes<'js>, iv: Bytes<'js>, beside: Bytes<'js>, data: Bytes<'js>, tag: usize
        ) =>
            aes::seal(key.as_ref(), iv.as_ref(), beside.as_ref(), data.as_ref(), *tag);
        "open": (
            key: Bytes<'js>, iv: Bytes<'js>, beside: Bytes<'js>, data: Bytes<'js>, tag: usize
        ) =>
            aes::open(key.as_ref(), iv.as_ref(), beside.as_ref(), data.as_ref(), *tag);
        "encryptCbc": (key: Bytes<'js>, iv: Bytes<'js>, data: Bytes<'js>) =>
            aes::encrypt_cbc(key.as_ref(), iv.as_ref(), data.as_ref());
        "decryptCbc": (key: Bytes<'js>, iv: Bytes<'js>, data: Bytes<'js>) =>
            aes::decrypt_cbc(key.as_ref(), iv.as_ref(), data.as_ref());
        "ctr": (key: Bytes<'js>, counter: Bytes<'js>, bits: u32, data: Bytes<'js>) =>
            aes::ctr(key.as_ref(), counter.as_ref(), *bits, data.as_ref());
        "wrap": (key: Bytes<'js>, data: Bytes<'js>) => aes::wrap(key.as_ref(), data.as_ref());
        "unwrap": (key: Bytes<'js>, data: Bytes<'js>) => aes::unwrap(key.as_ref(), data.as_ref());

        "generateEc": (curve: String) => elliptic::generate(curve);
        "publicOfEc": (curve: String, key: Bytes<'js>) => elliptic::public_of(curve, key.as_ref());
        "pointOfEc": (curve: String, point: Bytes<'js>) => elliptic::point(curve, point.as_ref());
        "signEc": (curve: String, hash: String, key: Bytes<'js>, data: Bytes<'js>) =>
            elliptic::sign(curve, hash, key.as_ref(), data.as_ref());
        "agreeEc": (curve: String, key: Bytes<'js>, public: Bytes<'js>) =>
            elliptic::agree(curve, key.as_ref(), public.as_ref());
        "pkcs8ToEc": (curve: String, der: Bytes<'js>) => elliptic::from_pkcs8(curve, der.as_ref());
        "pkcs8OfEc": (curve: String, key: Bytes<'js>) => elliptic::to_pkcs8(curve, key.as_ref());
        "spkiToEc": (curve: String, der: Bytes<'js>) => elliptic::from_spki(curve, der.as_ref());
        "spkiOfEc": (curve: String, key: Bytes<'js>) => elliptic::to_spki(curve, key.as_ref());

        "publicOf25519": (name: String, key: Bytes<'js>) =>
            curve25519::public_of(name, key.as_ref());
        "signEd25519": (key: Bytes<'js>, data: Bytes<'js>) =>
            curve25519::sign(key.as_ref(), data.as_ref());
        "agreeX25519": (key: Bytes<'js>, public: Bytes<'js>) =>
            curve25519::agree(key.as_ref(), public.as_ref());
        "pkcs8To25519": (name: String, der: Bytes<'js>) =>
            curve25519::from_pkcs8(name, der.as_ref());
        "pkcs8Of25519": (name: String, key: Bytes<'js>) => curve25519::to_pkcs8(name, key.as_ref());
        "spkiTo25519": (name: String, der: Bytes<'js>) => curve25519::from_spki(name, der.as_ref());
        "spkiOf25519": (name: String, key: Bytes<'js>) => curve25519::to_spki(name, key.as_ref());

        "generateRsa": (bits: usize, exponent: Bytes<'js>) =>
            rsa::generate(*bits, exponent.as_ref());
        "publicOfRsa": (key: Bytes<'js>) => rsa::public_of(key.as_ref());
        "publicRsa": (modulus: Bytes<'js>, exponent: Bytes<'js>) =>
            rsa::public_from(modulus.as_ref(), exponent.as_ref());
        "privateRsa": (numbers: Vec<Bytes<'js>>) => {
            let numbers: Vec<&[u8]> = numbers.iter().map(AsRef::as_ref).collect();
            rsa::private_from(&numbers)
        };
        "signRsa": (hash: String, key: Bytes<'js>, salt: Option<usize>, data: Bytes<'js>) =>
            rsa::sign(hash, key.as_ref(), *salt, data.as_ref());
        "encryptRsa": (hash: String, key: Bytes<'js>, label: Bytes<'js>, data: Bytes<'js>) =>
            rsa::encrypt(hash, key.as_ref(), label.as_ref(), data.as_ref());
        "decryptRsa": (hash: String, key: Bytes<'js>, label: Bytes<'js>, data: Bytes<'js>) =>
            rsa::decrypt(hash, key.as_ref(), label.as_ref(), data.as_ref());
        "pkcs8ToRsa": (der: Bytes<'js>) => rsa::from_pkcs8(der.as_ref());
        "pkcs8OfRsa": (key: Bytes<'js>) => rsa::to_pkcs8(key.as_ref());
        "spkiToRsa": (der: Bytes<'js>) => rsa::from_spki(der.as_ref());
        "spkiOfRsa": (key: Bytes<'js>) => rsa::to_spki(key.as_ref());
    }
    all.set(
        "isSignedEc",
        Func::from(
            |curve: String,
             hash: String,
             key: Bytes<'js>,
             signature: Bytes<'js>,
             data: Bytes<'js>| {
                elliptic::is_signed(
                    &curve,
                    &hash,
                    key.as_ref(),
                    signature.as_ref(),
                    data.as_ref(),
                )
            },
        ),
    )?;
    all.set(
        "isSignedEd25519",
        Func::from(|key: Bytes<'js>, signature: Bytes<'js>, data: Bytes<'js>| {
            curve25519::is_signed(key.as_ref(), signature.as_ref(), data.as_ref())
        }),
    )?;
    all.set(
        "isSignedRsa",
        Func::from(
            |hash: String,
             key: Bytes<'js>,
             salt: Option<usize>,
             signature: Bytes<'js>,
             data: Bytes<'js>| {
                rsa::is_signed(&hash, key.as_ref(), salt, signature.as_ref(), data.as_ref())
            },
        ),
    )?;
    all.set(
        "numbersOfRsa",
        Func::from(|ctx: Ctx<'js>, key: Bytes<'js>, is_private: Opt<bool>| {
            let numbers = match is_private.0 {
                Some(true) => rsa::numbers_of_private(key.as_ref()),
                _ => rsa::numbers_of_public(key.as_ref()),
            };
            list(ctx, numbers)
        }),
    )?;
    Ok(all)
}
