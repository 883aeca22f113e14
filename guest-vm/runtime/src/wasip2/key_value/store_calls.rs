//! Requests of a function to a store, independent of its interface.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use faasw_abi::channel::Channel;
use faasw_abi::store::{
    Answer, ITEMS_MAX, KEY_MAX, LENGTH_BYTES, ListFrom, OWN_STORE, Operation, Request, VALUE_MAX,
    is_store_name, length,
};
use wasmtime::Result;
use wasmtime::component::Resource;

use super::Bucket;
use crate::draws::Kind;
use crate::platform::{Incoming, Platform, fill, send_whole};
use crate::state::State;

/// The reason why a store was not opened, or an operation failed.
#[derive(Debug)]
pub(super) enum Refusal {
    /// No store can have this name.
    NoSuchStore,
    /// The function has no grant for the store.
    Denied,
    /// Any other reason, as a sentence.
    Other(String),
}

/// The result of a host function for a store: a trap, an error for the function, or the requested
/// value.
pub(super) type StoreResult<T> = Result<core::result::Result<T, Refusal>>;

/// Keys in their order, and whether more follow.
pub(super) struct Page {
    pub(super) keys: Vec<String>,
    pub(super) has_more: bool,
}

fn other(why: &str) -> Refusal {
    Refusal::Other(why.to_owned())
}

/// The error for an answer to a different request, which only a broken node sends.
fn unexpected_answer() -> Refusal {
    other("the node's answer belongs to another request")
}

fn texts(keys: &[&[u8]]) -> Vec<String> {
    let text = |key: &&[u8]| String::from_utf8_lossy(key).into_owned();
    keys.iter().map(text).collect()
}

impl<P: Platform> State<P> {
    /// Opens a store by its name. An empty name is the function's own store, like `default`,
    /// because Wasmtime's host accepts only that one.
    pub(super) fn open_bucket(
        &mut self,
        import: &'static str,
        mut name: String,
    ) -> StoreResult<Resource<Bucket>> {
        self.draws.record(Kind::Store, import, 0);
        if name.is_empty() {
            OWN_STORE.clone_into(&mut name);
        }
        if !is_store_name(&name) {
            return Ok(Err(Refusal::NoSuchStore));
        }
        // Each function has its own store, so opening it needs no round trip. If it is not
        // available, its operations report that.
        let is_known = name == OWN_STORE && self.platform.is_open(Channel::STORE);
        if !is_known && let Err(refusal) = self.done(&name, Operation::Open) {
            return Ok(Err(refusal));
        }
        Ok(Ok(self.table.push(Bucket { name })?))
    }

    /// Returns the name of an opened store, for a request of the function through `import`.
    fn bucket(&mut self, import: &'static str, bucket: &Resource<Bucket>) -> Result<String> {
        self.draws.record(Kind::Store, import, 0);
        Ok(self.table.get(bucket)?.name.clone())
    }

    /// Returns the values of keys, one for each.
    pub(super) fn values(
        &mut self,
        import: &'static str,
        bucket: &Resource<Bucket>,
        keys: &[String],
    ) -> StoreResult<Vec<Option<Vec<u8>>>> {
        let store = self.bucket(import, bucket)?;
        let operation = Operation::Get(keys.iter().map(String::as_bytes).collect());
        Ok(self.ask(&store, operation, |answer| match answer {
            Answer::Values(values) if values.len() == keys.len() => {
                let owned = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
                Ok(values.into_iter().map(owned).collect())
            }
            _ => Err(unexpected_answer()),
        }))
    }

    /// Returns the value of a key.
    pub(super) fn value(
        &mut self,
        import: &'static str,
        bucket: &Resource<Bucket>,
        key: String,
    ) -> StoreResult<Option<Vec<u8>>> {
        let values = self.values(import, bucket, &[key])?;
        Ok(values.map(|mut values| values.pop().flatten()))
    }

    /// Sets keys to values, all or none.
    pub(super) fn set_values(
        &mut self,
        import: &'static str,
        bucket: &Resource<Bucket>,
        pairs: &[(String, Vec<u8>)],
    ) -> StoreResult<()> {
        let store = self.bucket(import, bucket)?;
        let pairs = pairs.iter();
        let pairs = pairs.map(|(key, value)| (key.as_bytes(), value.as_slice()));
        Ok(self.done(&store, Operation::Set(pairs.collect())))
    }

    /// Removes keys, all or none.
    pub(super) fn delete_keys(
        &mut self,
        import: &'static str,
        bucket: &Resource<Bucket>,
        keys: &[String],
    ) -> StoreResult<()> {
        let store = self.bucket(import, bucket)?;
        let operation = Operation::Delete(keys.iter().map(String::as_bytes).collect());
        Ok(self.done(&store, operation))
    }

    /// Returns whether a key exists.
    pub(super) fn has_key(
        &mut self,
        import: &'static str,
        bucket: &Resource<Bucket>,
        key: &str,
    ) -> StoreResult<bool> {
        let store = self.bucket(import, bucket)?;
        let operation = Operation::Exists(key.as_bytes());
        Ok(self.ask(&store, operation, |answer| match answer {
            Answer::Exists(is_there) => Ok(is_there),
            _ => Err(unexpected_answer()),
        }))
    }

    /// Returns a page of keys, in their order.
    pub(super) fn some_keys(
        &mut self,
        import: &'static str,
        bucket: &Resource<Bucket>,
        from: ListFrom<'_>,
    ) -> StoreResult<Page> {
        let store = self.bucket(import, bucket)?;
        Ok(self.page(&store, from))
    }

    /// Returns all keys, in their order.
    pub(super) fn all_keys(
        &mut self,
        import: &'static str,
        bucket: &Resource<Bucket>,
    ) -> StoreResult<Vec<String>> {
        let store = self.bucket(import, bucket)?;
        let mut all: Vec<String> = Vec::new();
        loop {
            let last = all.last().cloned();
            let from = match &last {
                Some(key) => ListFrom::Behind(key.as_bytes()),
                None => ListFrom::Start,
            };
            match self.page(&store, from) {
                Ok(Page { keys, has_more }) => {
                    let is_last = keys.is_empty() || !has_more;
                    all.extend(keys);
                    if is_last {
                        return Ok(Ok(all));
                    }
                }
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
    }

    fn page(&mut self, store: &str, from: ListFrom<'_>) -> core::result::Result<Page, Refusal> {
        self.ask(store, Operation::Keys(from), |answer| match answer {
            Answer::Keys(keys, has_more) => Ok(Page {
                keys: texts(&keys),
                has_more,
            }),
            _ => Err(unexpected_answer()),
        })
    }

    /// Adds to the number of a key, and returns the result.
    pub(super) fn add(
        &mut self,
        import: &'static str,
        bucket: &Resource<Bucket>,
        key: &str,
        delta: i64,
    ) -> StoreResult<i64> {
        let store = self.bucket(import, bucket)?;
        let operation = Operation::Increment(key.as_bytes(), delta);
        Ok(self.ask(&store, operation, |answer| match answer {
            Answer::Number(number) => Ok(number),
            _ => Err(unexpected_answer()),
        }))
    }

    /// Sets a key if it still has the value that was read before; otherwise returns the current
    /// value.
    pub(super) fn swap_value(
        &mut self,
        store: &str,
        key: &str,
        seen: Option<&[u8]>,
        value: &[u8],
    ) -> core::result::Result<core::result::Result<(), Option<Vec<u8>>>, Refusal> {
        let key = key.as_bytes();
        self.ask(
            store,
            Operation::Swap { key, seen, value },
            |answer| match answer {
                Answer::Done => Ok(Ok(())),
                Answer::Values(now) => match now.as_slice() {
                    [now] => Ok(Err(now.map(<[u8]>::to_vec))),
                    _ => Err(unexpected_answer()),
                },
                _ => Err(unexpected_answer()),
            },
        )
    }

    fn done(&mut self, store: &str, operation: Operation<'_>) -> core::result::Result<(), Refusal> {
        self.ask(store, operation, |answer| match answer {
            Answer::Done => Ok(()),
            _ => Err(unexpected_answer()),
        })
    }

    /// Sends a request, and receives its answer.
    fn ask<T>(
        &mut self,
        store: &str,
        operation: Operation<'_>,
        take: impl FnOnce(Answer<'_>) -> core::result::Result<T, Refusal>,
    ) -> core::result::Result<T, Refusal> {
        check(&operation)?;
        // The channel is not open while a function is initialised or warmed up.
        if self.platform.incoming(Channel::STORE) == Incoming::End {
            return Err(other(
                "key-value stores are available only while a request is answered",
            ));
        }
        let record = Request { store, operation }
            .encode()
            .map_err(|_| Refusal::Other(format!("a batch takes {VALUE_MAX} bytes at most")))?;
        send_whole(&mut self.platform, Channel::STORE, &record);
        drop(record);
        let Some(answer) = self.take_answer() else {
            return Err(other("the node's answer is invalid"));
        };
        match Answer::decode(&answer) {
            Ok(Answer::Denied) => Err(Refusal::Denied),
            Ok(Answer::Failed(why)) => Err(other(why)),
            Ok(answer) => take(answer),
            Err(_) => Err(other("the node's answer is invalid")),
        }
    }

    /// Returns the next record without its length; `None` if the node sends something else.
    fn take_answer(&mut self) -> Option<Vec<u8>> {
        let mut announced = [0; LENGTH_BYTES];
        fill(&mut self.platform, Channel::STORE, &mut announced).then_some(())?;
        let mut answer = vec![0; length(announced).ok()?];
        fill(&mut self.platform, Channel::STORE, &mut answer).then_some(answer)
    }
}

/// Reports invalid keys and values to the function, before a record is made of them.
fn check(operation: &Operation<'_>) -> core::result::Result<(), Refusal> {
    let (keys, values): (Vec<&[u8]>, Vec<&[u8]>) = match operation {
        Operation::Open | Operation::Keys(ListFrom::Start | ListFrom::Number(_)) => return Ok(()),
        Operation::Get(keys) | Operation::Delete(keys) => (keys.clone(), Vec::new()),
        Operation::Set(pairs) => pairs.iter().copied().unzip(),
        Operation::Exists(key)
        | Operation::Increment(key, _)
        | Operation::Keys(ListFrom::Behind(key)) => (vec![key], Vec::new()),
        Operation::Swap { key, value, .. } => (vec![key], vec![value]),
    };
    if keys.len() > ITEMS_MAX {
        let why = format!("a batch has {ITEMS_MAX} keys at most, not {}", keys.len());
        return Err(Refusal::Other(why));
    }
    if let Some(key) = keys.iter().find(|key| !(1..=KEY_MAX).contains(&key.len())) {
        let why = format!("a key has 1 to {KEY_MAX} bytes, not {}", key.len());
        return Err(Refusal::Other(why));
    }
    if let Some(value) = values.iter().find(|value| value.len() > VALUE_MAX) {
        let why = format!("a value has {VALUE_MAX} bytes at most, not {}", value.len());
        return Err(Refusal::Other(why));
    }
    Ok(())
}
