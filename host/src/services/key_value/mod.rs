//! The key-value stores that functions have: a namespace for each function and each shared store.
//!
//! They are in one of two places: a file of the node's own ([`embedded`]), or a Redis server, which
//! several nodes may share ([`redis`]). Who asks notices no difference: the same changes have the
//! same results, the same limits and the same errors, a change is there whole or not at all when it
//! is answered, and one that failed is not there unless its error says that this is not known.
//! `host/tests/redis` holds both to that.
//!
//! Work is queued by its `owner`, the function that asks, and functions are served in turn
//! ([`fair`]).

mod change;
mod embedded;
mod error;
mod fair;
mod function;
mod redis;
mod told;

use std::{path::PathBuf, sync::Arc};

pub(crate) use change::{Change, Changed, Quota};
pub use error::StoreError;
pub(crate) use function::{FunctionStores, namespace_of, store_of};
pub use redis::{Dial, Dialing, KeyValueServer, KeyValueServerError, ServerAddress};

use embedded::Embedded;
use redis::Redis;

/// Most keys that a list begins behind by their number: each of them is read again.
const COUNTED: u64 = 100_000;

/// Where a list of keys begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Behind this key; an empty one is before all others.
    Behind(Vec<u8>),
    /// Behind so many keys, which are counted one by one, [`COUNTED`] at most.
    Number(u64),
}

impl Start {
    /// How many keys are counted.
    fn counted(&self) -> Result<u64, StoreError> {
        match self {
            Self::Behind(_) => Ok(0),
            Self::Number(number) if *number > COUNTED => Err(StoreError::TooFar(COUNTED)),
            Self::Number(number) => Ok(*number),
        }
    }
}

/// What a namespace has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) namespace: String,
    pub(crate) keys: u64,
    /// Of keys and values together.
    pub(crate) bytes: u64,
}

/// Keys in their order, and whether more follow.
pub(crate) type Page = (Vec<Vec<u8>>, bool);

/// Values of keys, and nothing for each that is not there.
pub(crate) type Values = Vec<Option<Vec<u8>>>;

/// The owner of what the node's operator asks for.
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
    /// Those in this file, which is made when it is first used.
    pub(crate) fn in_file(path: PathBuf) -> Result<Self, StoreError> {
        Ok(Self::Embedded(Arc::new(Embedded::in_file(path)?)))
    }

    /// Those that end with the process.
    pub(crate) fn in_memory() -> Result<Self, StoreError> {
        Ok(Self::Embedded(Arc::new(Embedded::in_memory()?)))
    }

    /// Those on a server, which has to be there now, and good for it.
    pub(crate) async fn on_server(server: &KeyValueServer) -> Result<Self, StoreError> {
        Ok(Self::Redis(Box::new(Redis::connect(server.clone()).await?)))
    }

    /// The values of these keys without waiting for anything, if all of them are known.
    pub(crate) fn known(&self, namespace: &str, keys: &[Vec<u8>]) -> Option<Values> {
        match self {
            Self::Embedded(store) => store.known(namespace, keys),
            // Other nodes change them at any time.
            Self::Redis(_) => None,
        }
    }

    /// The values of these keys, all of one moment, if they take `most` bytes together.
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

    /// Whether there is a key.
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

    /// At most `most` keys from `start` on, in their order.
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

    /// What each namespace has that has anything, in the order of their names.
    pub(crate) async fn uses(&self) -> Result<Vec<Use>, StoreError> {
        match self {
            Self::Embedded(store) => store.read(OPERATOR, Embedded::uses).await,
            Self::Redis(store) => store.uses().await,
        }
    }

    /// Changes a namespace; comes back when the change is there to stay, as far as the store's
    /// place keeps things.
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
