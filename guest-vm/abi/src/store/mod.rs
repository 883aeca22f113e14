//! Records of the key-value store: requests of a guest, and answers of the node. They are the
//! bodies of the two messages on the channel of the store, one after the other.
//!
//! ```text
//! record:   length (u32), that many bytes: a request or an answer
//! request:  store (string), operation (u8), what that takes
//! answer:   outcome (u8), what comes with it
//! ```
//!
//! Integers are little-endian, strings and lists as in [`crate::wire`]. A guest is synchronous: it
//! sends one request and reads its answer before the next, so a record needs no number. Both sides
//! check the limits before they read: [`RECORD_MAX`] for a length, [`ITEMS_MAX`] for a list,
//! [`KEY_MAX`] for a key. A node that receives an invalid record ends the guest, because its
//! runtime never sends one.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use crate::wire::{Reader, WireError, Writer};

/// Maximum bytes of a record, without its length: a value of the largest size with its key and
/// store, or the keys of one answer.
pub const RECORD_MAX: usize = VALUE_MAX + (64 << 10);

/// Bytes of a record's length.
pub const LENGTH_BYTES: usize = 4;

/// Maximum bytes of a key, which is UTF-8 and not empty.
pub const KEY_MAX: usize = 1 << 10;

/// Maximum bytes of a value.
pub const VALUE_MAX: usize = 1 << 20;

/// Maximum number of keys of a batch, and of an answer that lists keys.
pub const ITEMS_MAX: usize = 1_000;

/// Maximum bytes of a store's name.
pub const STORE_MAX: usize = 64;

/// Maximum bytes of an error's text.
pub const TEXT_MAX: usize = 256;

/// Name of the store that belongs to the function alone. SDKs open this name by default.
pub const OWN_STORE: &str = "default";

/// Spin's own interface for a store.
pub const SPIN_KEY_VALUE: &str = "fermyon:spin/key-value@2.0.0";

/// An older draft of `wasi:keyvalue`, which Wasmtime implements.
pub const DRAFT: Draft = Draft {
    store: "wasi:keyvalue/store@0.2.0-draft",
    atomics: "wasi:keyvalue/atomics@0.2.0-draft",
    batch: "wasi:keyvalue/batch@0.2.0-draft",
};

/// The newer draft of `wasi:keyvalue`, which Spin implements.
pub const DRAFT2: Draft = Draft {
    store: "wasi:keyvalue/store@0.2.0-draft2",
    atomics: "wasi:keyvalue/atomics@0.2.0-draft2",
    batch: "wasi:keyvalue/batch@0.2.0-draft2",
};

/// The interfaces of a draft of `wasi:keyvalue`.
#[derive(Clone, Copy, Debug)]
pub struct Draft {
    /// Reads and writes.
    pub store: &'static str,
    /// Atomic operations.
    pub atomics: &'static str,
    /// Operations on several keys at once.
    pub batch: &'static str,
}

/// Returns whether an import, as `interface#function`, belongs to a store. A function with such an
/// import receives the channel.
#[must_use]
pub fn is_import(import: &str) -> bool {
    let Some((interface, _)) = import.split_once('#') else {
        return false;
    };
    let drafts = [DRAFT, DRAFT2];
    let mut names = drafts
        .iter()
        .flat_map(|draft| [draft.store, draft.atomics, draft.batch]);
    interface == SPIN_KEY_VALUE || names.any(|name| name == interface)
}

/// Returns whether a store can have this name: 1 to [`STORE_MAX`] letters, digits, `-`, `_` and
/// `.`, of which the last three cannot be first.
#[must_use]
pub fn is_store_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.len() <= STORE_MAX
        && name.bytes().all(is_plain)
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
}

/// A request of a guest to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The store, by the name that the function uses.
    pub store: &'a str,
    /// The requested operation.
    pub operation: Operation<'a>,
}

/// An operation on a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Checks whether the function may use the store. The answer is [`Answer::Done`].
    Open,
    /// Reads the values of these keys. The answer is [`Answer::Values`], with one item for each.
    Get(Vec<&'a [u8]>),
    /// Sets these keys to these values, all or none. The answer is [`Answer::Done`].
    Set(Vec<(&'a [u8], &'a [u8])>),
    /// Removes these keys, if they exist, all or none. The answer is [`Answer::Done`].
    Delete(Vec<&'a [u8]>),
    /// Checks whether this key exists. The answer is [`Answer::Exists`].
    Exists(&'a [u8]),
    /// Lists keys in their order, from this position on. The answer is [`Answer::Keys`].
    Keys(ListFrom<'a>),
    /// Adds to the number of a key, which is 0 if the key is missing. The answer is
    /// [`Answer::Number`].
    Increment(&'a [u8], i64),
    /// Sets a key if it still has the value that was read before. The answer is [`Answer::Done`],
    /// or [`Answer::Values`] with the current value.
    Swap {
        /// The key.
        key: &'a [u8],
        /// The value that was read; `None` if the key did not exist.
        seen: Option<&'a [u8]>,
        /// The new value.
        value: &'a [u8],
    },
}

/// Start of a list of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListFrom<'a> {
    /// At the first key.
    Start,
    /// After this key, whether or not it exists.
    Behind(&'a [u8]),
    /// After this number of keys.
    Number(u64),
}

/// An answer of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The operation is complete. Written data is as durable as the store's location allows.
    Done,
    /// Values, or `None` for keys that do not exist.
    Values(Vec<Option<&'a [u8]>>),
    /// Whether the key exists.
    Exists(bool),
    /// Keys in their order, and whether more follow.
    Keys(Vec<&'a [u8]>, bool),
    /// The number that the key has now.
    Number(i64),
    /// The function has no grant for the store, whether or not it exists.
    Denied,
    /// The operation failed, for this reason. Nothing was changed, unless the text says that this
    /// is unknown.
    Failed(&'a str),
}

impl<'a> Request<'a> {
    /// Encodes the request as a record, with its length.
    ///
    /// # Errors
    /// Returns [`WireError::BadValue`] if an item exceeds its maximum.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        let mut writer = begin();
        writer.string(self.store.as_bytes());
        match &self.operation {
            Operation::Open => writer.bytes(&[1]),
            Operation::Get(keys) => {
                writer.bytes(&[2]);
                writer.strings(keys);
            }
            Operation::Set(pairs) => {
                writer.bytes(&[3]);
                writer.pairs(pairs);
            }
            Operation::Delete(keys) => {
                writer.bytes(&[4]);
                writer.strings(keys);
            }
            Operation::Exists(key) => {
                writer.bytes(&[5]);
                writer.string(key);
            }
            Operation::Keys(from) => {
                writer.bytes(&[6]);
                match from {
                    ListFrom::Start => writer.bytes(&[0]),
                    ListFrom::Behind(key) => {
                        writer.bytes(&[1]);
                        writer.string(key);
                    }
                    ListFrom::Number(number) => {
                        writer.bytes(&[2]);
                        writer.bytes(&number.to_le_bytes());
                    }
                }
            }
            Operation::Increment(key, delta) => {
                writer.bytes(&[7]);
                writer.string(key);
                writer.bytes(&delta.to_le_bytes());
            }
            Operation::Swap { key, seen, value } => {
                writer.bytes(&[8]);
                writer.string(key);
                put_option(&mut writer, *seen);
                writer.string(value);
            }
        }
        // This side refuses what the other side would refuse.
        end_record(writer, |body| Request::decode(body).map(drop))
    }

    /// Decodes a request from a record's bytes, without its length.
    ///
    /// # Errors
    /// Returns a [`WireError`] if the bytes are no request, or an item exceeds its maximum.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        bounded(bytes, |reader| {
            let store = text(reader, STORE_MAX)?;
            let operation = match reader.array()? {
                [1] => Operation::Open,
                [2] => Operation::Get(list(reader, key)?),
                [3] => Operation::Set(list(reader, |reader| Ok((key(reader)?, value(reader)?)))?),
                [4] => Operation::Delete(list(reader, key)?),
                [5] => Operation::Exists(key(reader)?),
                [6] => Operation::Keys(from(reader)?),
                [7] => Operation::Increment(key(reader)?, i64::from_le_bytes(reader.array()?)),
                [8] => Operation::Swap {
                    key: key(reader)?,
                    seen: option(reader, value)?,
                    value: value(reader)?,
                },
                _ => return Err(WireError::BadValue),
            };
            Ok(Self { store, operation })
        })
    }
}

impl<'a> Answer<'a> {
    /// Encodes the answer as a record, with its length.
    ///
    /// # Errors
    /// Returns [`WireError::BadValue`] if an item exceeds its maximum.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        let mut writer = begin();
        match self {
            Self::Done => writer.bytes(&[1]),
            Self::Values(values) => {
                writer.bytes(&[2]);
                writer.list(values, |writer, value| put_option(writer, *value));
            }
            Self::Exists(is_there) => writer.bytes(&[3, u8::from(*is_there)]),
            Self::Keys(keys, more) => {
                writer.bytes(&[4, u8::from(*more)]);
                writer.strings(keys);
            }
            Self::Number(number) => {
                writer.bytes(&[5]);
                writer.bytes(&number.to_le_bytes());
            }
            Self::Denied => writer.bytes(&[6]),
            Self::Failed(why) => {
                writer.bytes(&[7]);
                writer.string(why.as_bytes());
            }
        }
        end_record(writer, |body| Answer::decode(body).map(drop))
    }

    /// Decodes an answer from a record's bytes, without its length.
    ///
    /// # Errors
    /// Returns a [`WireError`] if the bytes are no answer, or an item exceeds its maximum.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        bounded(bytes, |reader| {
            Ok(match reader.array()? {
                [1] => Self::Done,
                [2] => Self::Values(list(reader, |reader| option(reader, value))?),
                [3] => Self::Exists(flag(reader)?),
                [4] => {
                    let more = flag(reader)?;
                    Self::Keys(list(reader, key)?, more)
                }
                [5] => Self::Number(i64::from_le_bytes(reader.array()?)),
                [6] => Self::Denied,
                [7] => Self::Failed(text(reader, TEXT_MAX)?),
                _ => return Err(WireError::BadValue),
            })
        })
    }
}

/// Returns the length that a record announces.
///
/// # Errors
/// Returns [`WireError::BadValue`] if it is more than [`RECORD_MAX`].
pub fn length(bytes: [u8; LENGTH_BYTES]) -> Result<usize, WireError> {
    match usize::try_from(u32::from_le_bytes(bytes)) {
        Ok(length) if length <= RECORD_MAX => Ok(length),
        _ => Err(WireError::BadValue),
    }
}

/// Begins a record whose length is still unknown, so that a large value is copied into it once.
fn begin() -> Writer {
    let mut writer = Writer::default();
    writer.bytes(&[0; LENGTH_BYTES]);
    writer
}

fn end_record(
    writer: Writer,
    check: impl FnOnce(&[u8]) -> Result<(), WireError>,
) -> Result<Vec<u8>, WireError> {
    let mut record = writer.into_bytes();
    let Some((length, body)) = record.split_first_chunk_mut::<LENGTH_BYTES>() else {
        return Err(WireError::Truncated);
    };
    check(body)?;
    let bytes = u32::try_from(body.len()).map_err(|_| WireError::BadValue)?;
    *length = bytes.to_le_bytes();
    Ok(record)
}

/// Decodes a record of at most [`RECORD_MAX`] bytes.
fn bounded<'a, T>(
    bytes: &'a [u8],
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, WireError>,
) -> Result<T, WireError> {
    match bytes.len() {
        0..=RECORD_MAX => Reader::decode(bytes, read),
        _ => Err(WireError::BadValue),
    }
}

fn key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], WireError> {
    let key = reader.slice()?;
    // All interfaces have keys as text. With a lossy conversion of an invalid key, a listing would
    // continue after a key that does not exist, without end.
    match key.len() {
        1..=KEY_MAX if core::str::from_utf8(key).is_ok() => Ok(key),
        _ => Err(WireError::BadValue),
    }
}

fn from<'a>(reader: &mut Reader<'a>) -> Result<ListFrom<'a>, WireError> {
    match reader.array()? {
        [0] => Ok(ListFrom::Start),
        [1] => Ok(ListFrom::Behind(key(reader)?)),
        [2] => Ok(ListFrom::Number(u64::from_le_bytes(reader.array()?))),
        _ => Err(WireError::BadValue),
    }
}

fn value<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], WireError> {
    let value = reader.slice()?;
    match value.len() {
        0..=VALUE_MAX => Ok(value),
        _ => Err(WireError::BadValue),
    }
}

fn text<'a>(reader: &mut Reader<'a>, most: usize) -> Result<&'a str, WireError> {
    let text = reader.slice()?;
    if text.len() > most {
        return Err(WireError::BadValue);
    }
    core::str::from_utf8(text).map_err(|_| WireError::BadValue)
}

fn flag(reader: &mut Reader<'_>) -> Result<bool, WireError> {
    match reader.array()? {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(WireError::BadValue),
    }
}

fn put_option(writer: &mut Writer, item: Option<&[u8]>) {
    writer.bytes(&[u8::from(item.is_some())]);
    if let Some(item) = item {
        writer.string(item);
    }
}

fn option<'a, T>(
    reader: &mut Reader<'a>,
    item: impl FnOnce(&mut Reader<'a>) -> Result<T, WireError>,
) -> Result<Option<T>, WireError> {
    flag(reader)?.then(|| item(reader)).transpose()
}

fn list<'a, T>(
    reader: &mut Reader<'a>,
    mut item: impl FnMut(&mut Reader<'a>) -> Result<T, WireError>,
) -> Result<Vec<T>, WireError> {
    let count = u32::from_le_bytes(reader.array()?);
    if !usize::try_from(count).is_ok_and(|count| count <= ITEMS_MAX) {
        return Err(WireError::BadValue);
    }
    (0..count).map(|_| item(reader)).collect()
}
