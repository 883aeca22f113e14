//! The key-value stores of functions: a namespace for each function and each shared store.
//!
//! The stores are in one of two places: a file of the node's own ([`embedded`]), or a Redis server,
//! which several nodes may share ([`redis`]). Both behave the same: the same changes have the same
//! results, limits and errors. A change is there completely or not at all when it is answered. One
//! that failed was not made, unless its error says that this is unknown. `host/tests/redis` tests
//! both for this.
//!
//! Work is queued by its `owner`, the function that requests it, and functions are served in turn
//! ([`fair`]).

mod change;
mod embedded;
mod error;
mod failure_log;
mod fair;
mod function;
mod redis;

use std::{path::PathBuf, sync::Arc};

pub(crate) use change::{Change, Changed, Quota};
pub use error::StoreError;
pub(crate) use function::{FunctionStores, namespace_of, store_of};
pub use redis::{Dial, Dialing, KeyValueServer, KeyValueServerError, ServerAddress};

use embedded::Embedded;
use redis::Redis;

/// The most keys that a list skips by number, because each of them is read again.
const COUNTED: u64 = 100_000;

/// Where a list of keys begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Behind this key. An empty key is before all others.
    Behind(Vec<u8>),
    /// Behind this number of keys, which are counted one by one, at most [`COUNTED`].
    Number(u64),
}

impl Start {
    /// Returns how many keys have to be counted.
    fn counted(&self) -> Result<u64, StoreError> {
        match self {
            Self::Behind(_) => Ok(0),
            Self::Number(number) if *number > COUNTED => Err(StoreError::TooFar(COUNTED)),
            Self::Number(number) => Ok(*number),
        }
    }
}

/// The size of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceUsage {
    pub(crate) namespace: String,
    pub(crate) keys: u64,
    /// The bytes of keys and values together.
    pub(crate) bytes: u64,
}

/// Keys in order, and whether more follow.
pub(crate) type Page = (Vec<Vec<u8>>, bool);

/// The values of keys, with `None` for each key that does not exist.
pub(crate) type Values = Vec<Option<Vec<u8>>>;

/// The owner of the node's own requests, made for its operator.
pub(crate) const OPERATOR: &str = "";

/// The stores of a node's functions.
#[derive(Debug)]
pub(crate) enum KeyValue {
    /// In the node.
    Embedded(Arc<Embedded>),
    /// On a server.
    Redis(Box<Redis>),
}

impl KeyValue {
    /// Returns the stores in this file, which is created at its first use.
    pub(crate) fn in_file(path: PathBuf) -> Result<Self, StoreError> {
        Ok(Self::Embedded(Arc::new(Embedded::in_file(path)?)))
    }

    /// Creates stores that end with the process.
    pub(crate) fn in_memory() -> Result<Self, StoreError> {
        Ok(Self::Embedded(Arc::new(Embedded::in_memory()?)))
    }

    /// Connects to the stores on a server. The server has to be reachable now and fit for use.
    pub(crate) async fn on_server(server: &KeyValueServer) -> Result<Self, StoreError> {
        Ok(Self::Redis(Box::new(Redis::connect(server.clone()).await?)))
    }

    /// Returns the values of these keys without waiting, if all of them are in memory.
    pub(crate) fn cached(&self, namespace: &str, keys: &[Vec<u8>]) -> Option<Values> {
        match self {
            Self::Embedded(store) => store.cached(namespace, keys),
            // Other nodes change them at any time.
            Self::Redis(_) => None,
        }
    }

    /// Returns the values of these keys, all as of one moment, unless they take more than `most`
    /// bytes together.
    pub(crate) async fn get(
        &self,
        owner: &str,
        namespace: String,
        keys: Vec<Vec<u8>>,
        most: usize,
    ) -> Result<Values, StoreError> {
        match self {
            Self::Embedded(store) => {
                let read = move |store: &Embedded| store.get(&namespace, &keys, most);
                store.read(owner, read).await
            }
            Self::Redis(store) => store.get(owner, &namespace, &keys, most).await,
        }
    }

    /// Whether a key exists.
    pub(crate) async fn exists(
        &self,
        owner: &str,
        namespace: String,
        key: Vec<u8>,
    ) -> Result<bool, StoreError> {
        match self {
            Self::Embedded(store) => {
                let read = move |store: &Embedded| store.exists(&namespace, &key);
                store.read(owner, read).await
            }
            Self::Redis(store) => store.exists(owner, &namespace, &key).await,
        }
    }

    /// Returns at most `most` keys from `start` on, in order.
    pub(crate) async fn keys(
        &self,
        owner: &str,
        namespace: String,
        start: Start,
        most: usize,
    ) -> Result<Page, StoreError> {
        match self {
            Self::Embedded(store) => store.list(owner, namespace, start, most).await,
            Self::Redis(store) => store.keys(owner, &namespace, &start, most).await,
        }
    }

    /// Lists the sizes of all namespaces that have any keys, in the order of their names.
    pub(crate) async fn uses(&self) -> Result<Vec<NamespaceUsage>, StoreError> {
        match self {
            Self::Embedded(store) => store.read(OPERATOR, Embedded::uses).await,
            Self::Redis(store) => store.uses().await,
        }
    }

    /// Changes a namespace. Returns once the change is as durable as the store's place makes it.
    pub(crate) async fn change(
        &self,
        owner: &str,
        namespace: String,
        quota: Quota,
        change: Change,
    ) -> Result<Changed, StoreError> {
        match self {
            Self::Embedded(store) => store.change(owner, namespace, quota, change).await,
            Self::Redis(store) => store.change(owner, &namespace, quota, &change).await,
        }
    }
}
