//! Key-value stores, for `web/stores.js`.
//!
//! A store is opened at its first use in a request and closed when the request ends, so that the
//! frozen state of a script has no open store. The node decides which stores the function may open.

use std::cell::RefCell;

use rquickjs::{Ctx, Exception, FromJs, Result, String as JsString, TypedArray, Value};

use crate::{
    bindings::wasi::keyvalue::{
        atomics::{self, Cas, CasError},
        batch,
        store::{self, Bucket, Error},
    },
    settings::{check_request, throw},
};

/// Maximum bytes of a key, keys of a call, and bytes of a value. The node checks these limits, too,
/// but ends a request whose arguments exceed them by far.
const KEY_MAX: usize = 1024;
const KEYS_MAX: usize = 1000;
pub(crate) const VALUE_MAX: usize = 1 << 20;

type Outcome<T> = std::result::Result<T, Error>;

thread_local! {
    static OPEN: RefCell<Vec<(String, Bucket)>> = const { RefCell::new(Vec::new()) };
}

/// Closes all stores at the end of a request.
pub(crate) fn close() {
    OPEN.take();
}

/// Throws an error if no request is being answered.
pub(crate) fn check(ctx: &Ctx<'_>, store: &str) -> Result<()> {
    check_request(ctx, &format!("the key-value store {store:?}"))
}

/// Runs `run`, which must not run JavaScript, with the store of this name.
fn with<T>(ctx: &Ctx<'_>, name: &str, run: impl FnOnce(&Bucket) -> Outcome<T>) -> Result<T> {
    check(ctx, name)?;
    let outcome = OPEN.with_borrow_mut(|open| -> Outcome<T> {
        if !open.iter().any(|(other, _)| other == name) {
            open.push((name.to_owned(), store::open(name)?));
        }
        let bucket = open.iter().find(|(other, _)| other == name);
        bucket.map_or(Err(Error::NoSuchStore), |(_, bucket)| run(bucket))
    });
    outcome.map_err(|error| throw(ctx, &describe(name, error)))
}

fn describe(name: &str, error: Error) -> String {
    match error {
        Error::NoSuchStore => format!("no key-value store can have the name {name:?}"),
        Error::AccessDenied => format!(
            "access to the key-value store {name:?} is denied: deploy the function with --kv {name}"
        ),
        Error::Other(why) => format!("the key-value store {name:?}: {why}"),
    }
}

fn other(why: String) -> Error {
    Error::Other(why)
}

fn check_key(key: &str) -> Outcome<()> {
    match key.len() {
        1..=KEY_MAX => Ok(()),
        length => Err(other(format!(
            "a key has 1 to {KEY_MAX} bytes, not {length}"
        ))),
    }
}

fn check_value(value: &[u8]) -> Outcome<()> {
    if value.len() <= VALUE_MAX {
        return Ok(());
    }
    let length = value.len();
    Err(other(format!(
        "a value has {VALUE_MAX} bytes at most, not {length}"
    )))
}

/// Returns the bytes of a string or a `Uint8Array`.
fn bytes<'js>(ctx: &Ctx<'js>, value: Value<'js>) -> Result<Vec<u8>> {
    if let Some(text) = value.as_string() {
        return Ok(JsString::to_string(text)?.into_bytes());
    }
    let array = TypedArray::<u8>::from_js(ctx, value)?;
    // SAFETY: the bytes are copied before any JavaScript runs.
    Ok(unsafe { array.as_bytes() }.unwrap_or_default().to_vec())
}

/// Returns the values of keys in their order, as strings or as `Uint8Array`s; `undefined` for each
/// key that does not exist.
pub(crate) fn get<'js>(
    ctx: Ctx<'js>,
    store: String,
    keys: Vec<String>,
    as_text: bool,
) -> Result<Vec<Value<'js>>> {
    let values = with(&ctx, &store, |bucket| {
        if keys.len() > KEYS_MAX {
            let count = keys.len();
            return Err(other(format!(
                "a call has {KEYS_MAX} keys at most, not {count}"
            )));
        }
        keys.iter().try_for_each(|key| check_key(key))?;
        match keys.as_slice() {
            [] => Ok(Vec::new()),
            [key] => Ok(vec![bucket.get(key)?]),
            keys => {
                let pairs = batch::get_many(bucket, keys)?.into_iter();
                Ok(pairs.map(|(_, value)| value).collect())
            }
        }
    })?;
    let values = values.into_iter().map(|value| match value {
        None => Ok(Value::new_undefined(ctx.clone())),
        Some(value) if as_text => {
            let text = String::from_utf8_lossy(&value);
            Ok(JsString::from_str(ctx.clone(), &text)?.into_value())
        }
        Some(value) => Ok(TypedArray::new(ctx.clone(), value)?.into_value()),
    });
    values.collect()
}

/// Sets a key to a string or to the bytes of a `Uint8Array`.
pub(crate) fn set<'js>(ctx: Ctx<'js>, store: String, key: String, value: Value<'js>) -> Result<()> {
    let value = bytes(&ctx, value)?;
    with(&ctx, &store, |bucket| {
        check_key(&key)?;
        check_value(&value)?;
        bucket.set(&key, &value)
    })
}

/// Removes a key.
pub(crate) fn delete(ctx: Ctx<'_>, store: String, key: String) -> Result<()> {
    with(&ctx, &store, |bucket| {
        check_key(&key)?;
        bucket.delete(&key)
    })
}

/// Returns up to `limit` keys that begin with `prefix`, in the order of their bytes, and whether
/// these are the last ones. With `behind`, only keys behind that key are returned.
pub(crate) fn list(
    ctx: Ctx<'_>,
    store: String,
    prefix: String,
    limit: usize,
    behind: Option<String>,
) -> Result<(Vec<String>, bool)> {
    with(&ctx, &store, |bucket| {
        let mut keys = Vec::new();
        let behind = behind.filter(|key| key.as_bytes() >= prefix.as_bytes());
        let mut behind = match behind {
            Some(key) => {
                check_key(&key)?;
                Some(key)
            }
            None if prefix.is_empty() => None,
            None => {
                check_key(&prefix)?;
                if bucket.exists(&prefix)? {
                    keys.push(prefix.clone());
                }
                Some(prefix.clone())
            }
        };
        loop {
            let page = bucket.list_keys(behind.as_deref())?;
            for key in page.keys {
                if !key.starts_with(&prefix) {
                    return Ok((keys, true));
                }
                if keys.len() >= limit {
                    return Ok((keys, false));
                }
                keys.push(key);
            }
            behind = page.cursor;
            if behind.is_none() {
                return Ok((keys, true));
            }
        }
    })
}

/// Adds to the number of a key, and returns the result. Both are decimal texts, because numbers of
/// JavaScript have 53 bits.
pub(crate) fn increment(ctx: Ctx<'_>, store: String, key: String, delta: String) -> Result<String> {
    let Ok(delta) = delta.parse() else {
        let why = format!("{delta} is too large for the number of a key");
        return Err(Exception::throw_range(&ctx, &why));
    };
    let number = with(&ctx, &store, |bucket| {
        check_key(&key)?;
        atomics::increment(bucket, &key, delta)
    })?;
    Ok(number.to_string())
}

/// Sets a key if it has the expected value, where null stands for a missing key. Returns whether it
/// did.
pub(crate) fn compare_and_set<'js>(
    ctx: Ctx<'js>,
    store: String,
    key: String,
    expected: Value<'js>,
    value: Value<'js>,
) -> Result<bool> {
    let expected = if expected.is_null() {
        None
    } else {
        Some(bytes(&ctx, expected)?)
    };
    let value = bytes(&ctx, value)?;
    with(&ctx, &store, |bucket| {
        check_key(&key)?;
        check_value(&value)?;
        let cas = Cas::new(bucket, &key)?;
        if cas.current()? != expected {
            return Ok(false);
        }
        match atomics::swap(cas, &value) {
            Ok(()) => Ok(true),
            Err(CasError::CasFailed(_)) => Ok(false),
            Err(CasError::StoreError(error)) => Err(error),
        }
    })
}
