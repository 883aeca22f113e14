//! The stores of one function, as its guests access them.
//!
//! A guest's request is decoded with bounds checks. Here a store's name is mapped to a namespace
//! that the function may use, or denied.

use std::{collections::BTreeMap, future::ready, sync::Arc};

use faasw_abi::{
    store::{Answer, ITEMS_MAX, ListFrom, OWN_STORE, Operation, Request, VALUE_MAX},
    wire::WireError,
};
use faasw_client::{FunctionName, Store, StoreName};
use faasw_pool::{StoreAnswerFuture, StoreService};

use super::{Change, Changed, KeyValue, Quota, Start, StoreError};

/// The stores that one function may access.
#[derive(Debug)]
pub(crate) struct FunctionStores {
    store: Arc<KeyValue>,
    own: String,
    granted: Vec<StoreName>,
    quota: Quota,
}

/// The prefix of the namespaces of functions' own stores.
const FUNCTION: &str = "function/";

/// The prefix of the namespaces of shared stores.
const SHARED: &str = "shared/";

/// Returns the namespace of a store.
pub(crate) fn namespace_of(store: &Store) -> String {
    match store {
        Store::Function(name) => format!("{FUNCTION}{name}"),
        Store::Shared(name) => format!("{SHARED}{name}"),
    }
}

/// Returns the store of a namespace.
pub(crate) fn store_of(namespace: &str) -> Option<Store> {
    if let Some(name) = namespace.strip_prefix(FUNCTION) {
        return FunctionName::new(name).ok().map(Store::Function);
    }
    let name = namespace.strip_prefix(SHARED)?;
    StoreName::new(name).ok().map(Store::Shared)
}

/// An operation on the store, detached from the record that carried it.
enum Work {
    Nothing,
    Get(Vec<Vec<u8>>),
    Exists(Vec<u8>),
    Keys(Start),
    Change(Change),
}

impl FunctionStores {
    /// Returns the stores of this function: its own and those that its version was granted.
    pub(crate) fn new(
        store: Arc<KeyValue>,
        function: &FunctionName,
        granted: Vec<StoreName>,
        quota: Quota,
    ) -> Self {
        Self {
            store,
            own: namespace_of(&Store::Function(function.clone())),
            granted,
            quota,
        }
    }

    /// Returns the namespace of a store's name, if the function may use that store.
    fn namespace(&self, name: &str) -> Option<String> {
        if name == OWN_STORE {
            return Some(self.own.clone());
        }
        let granted = self.granted.iter().find(|store| store.as_str() == name);
        granted.map(|store| namespace_of(&Store::Shared(store.clone())))
    }
}

impl StoreService for FunctionStores {
    fn answer(&self, record: Vec<u8>) -> StoreAnswerFuture {
        let (namespace, work) = match Request::decode(&record) {
            Ok(asked) => (self.namespace(asked.store), work(asked.operation)),
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let Some(namespace) = namespace else {
            return Box::pin(ready(Answer::Denied.encode()));
        };
        if let Work::Get(keys) = &work
            && let Some(values) = self.store.cached(&namespace, keys)
        {
            return Box::pin(ready(encode_values(&values)));
        }
        let (store, quota) = (Arc::clone(&self.store), self.quota);
        // The owner is the function, whichever store the request is for.
        let owner = self.own.clone();
        Box::pin(async move {
            let answer = Box::pin(run(store, owner, namespace, quota, work)).await;
            answer.unwrap_or_else(|error| Answer::Failed(&error.to_function()).encode())
        })
    }
}

/// Copies an operation out of its record.
fn work(operation: Operation<'_>) -> Work {
    let owned = |keys: Vec<&[u8]>| keys.into_iter().map(<[u8]>::to_vec).collect();
    match operation {
        Operation::Open => Work::Nothing,
        Operation::Get(keys) => Work::Get(owned(keys)),
        Operation::Exists(key) => Work::Exists(key.to_vec()),
        Operation::Keys(from) => Work::Keys(match from {
            ListFrom::Start => Start::Behind(Vec::new()),
            ListFrom::Behind(key) => Start::Behind(key.to_vec()),
            ListFrom::Number(number) => Start::Number(number),
        }),
        Operation::Set(pairs) => {
            let pairs = pairs.into_iter();
            // If a key occurs twice, its last value wins.
            let pairs = pairs.map(|(key, value)| (key.to_vec(), Some(value.to_vec())));
            Work::Change(Change::Put(pairs.collect()))
        }
        Operation::Delete(keys) => {
            let keys = keys.into_iter().map(|key| (key.to_vec(), None));
            Work::Change(Change::Put(keys.collect::<BTreeMap<_, _>>()))
        }
        Operation::Increment(key, delta) => Work::Change(Change::Increment(key.to_vec(), delta)),
        Operation::Swap { key, seen, value } => Work::Change(Change::Swap {
            key: key.to_vec(),
            seen: seen.map(<[u8]>::to_vec),
            value: value.to_vec(),
        }),
    }
}

/// Makes an operation, and returns the record of its answer.
async fn run(
    store: Arc<KeyValue>,
    owner: String,
    namespace: String,
    quota: Quota,
    work: Work,
) -> Result<Result<Vec<u8>, WireError>, StoreError> {
    let owner = owner.as_str();
    Ok(match work {
        Work::Nothing => Answer::Done.encode(),
        Work::Get(keys) => encode_values(&store.get(owner, namespace, keys, VALUE_MAX).await?),
        Work::Exists(key) => Answer::Exists(store.exists(owner, namespace, key).await?).encode(),
        Work::Keys(start) => {
            let (keys, has_more) = store.keys(owner, namespace, start, ITEMS_MAX).await?;
            Answer::Keys(keys.iter().map(Vec::as_slice).collect(), has_more).encode()
        }
        Work::Change(change) => match store.change(owner, namespace, quota, change).await? {
            Changed::Done => Answer::Done.encode(),
            Changed::Number(number) => Answer::Number(number).encode(),
            Changed::Stale(now) => encode_values(&[now]),
        },
    })
}

fn encode_values(values: &[Option<Vec<u8>>]) -> Result<Vec<u8>, WireError> {
    Answer::Values(values.iter().map(Option::as_deref).collect()).encode()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: Quota = Quota {
        keys: 2,
        bytes: 100,
    };

    async fn ask(stores: &FunctionStores, store: &str, operation: Operation<'_>) -> Vec<u8> {
        let record = Request { store, operation }.encode().unwrap();
        let answer = stores.answer(record[4..].to_vec()).await.unwrap();
        answer[4..].to_vec()
    }

    fn stores(store: &Arc<KeyValue>, function: &str, granted: &[&str]) -> FunctionStores {
        let granted = granted.iter().map(|name| StoreName::new(*name).unwrap());
        let function = FunctionName::new(function).unwrap();
        FunctionStores::new(Arc::clone(store), &function, granted.collect(), QUOTA)
    }

    #[tokio::test]
    async fn a_function_accesses_its_own_store_and_granted_ones_only() {
        let store = Arc::new(KeyValue::in_memory().unwrap());
        let (one, other) = (stores(&store, "a", &["users"]), stores(&store, "b", &[]));
        let set = || Operation::Set(vec![(b"k", b"1")]);
        let get = || Operation::Get(vec![b"k"]);
        let done = Answer::Done.encode().unwrap();
        assert_eq!(ask(&one, "default", set()).await, done[4..]);
        assert_eq!(ask(&one, "users", set()).await, done[4..]);
        let nothing = ask(&other, "default", get()).await;
        assert_eq!(Answer::decode(&nothing), Ok(Answer::Values(vec![None])));
        // A name is no path from one namespace to another.
        for name in ["users", "a", "function/a", "", "shared/users"] {
            let denied = ask(&other, name, get()).await;
            assert_eq!(Answer::decode(&denied), Ok(Answer::Denied), "{name}");
        }
        let granted = ask(&stores(&store, "b", &["users"]), "users", get()).await;
        assert_eq!(
            Answer::decode(&granted),
            Ok(Answer::Values(vec![Some(b"1")]))
        );
    }

    #[tokio::test]
    async fn each_operation_has_its_result() {
        let store = Arc::new(KeyValue::in_memory().unwrap());
        let stores = stores(&store, "a", &[]);
        let swap = |seen, value| Operation::Swap {
            key: b"k",
            seen,
            value,
        };
        let steps = [
            (Operation::Open, Answer::Done),
            (Operation::Exists(b"k"), Answer::Exists(false)),
            (Operation::Increment(b"k", -2), Answer::Number(-2)),
            (swap(Some(b"1"), b"3"), Answer::Values(vec![Some(b"-2")])),
            (swap(Some(b"-2"), b"3"), Answer::Done),
            (
                Operation::Get(vec![b"k", b"l"]),
                Answer::Values(vec![Some(b"3"), None]),
            ),
            (
                Operation::Keys(ListFrom::Start),
                Answer::Keys(vec![b"k"], false),
            ),
            (
                Operation::Keys(ListFrom::Number(1)),
                Answer::Keys(vec![], false),
            ),
            (
                Operation::Set(vec![(b"l", b""), (b"m", b"")]),
                Answer::Failed("the store would have more than 2 keys"),
            ),
            (Operation::Delete(vec![b"k", b"x"]), Answer::Done),
            (
                Operation::Keys(ListFrom::Behind(b"a")),
                Answer::Keys(vec![], false),
            ),
        ];
        for (operation, expected) in steps {
            let asked = format!("{operation:?}");
            let answer = ask(&stores, "default", operation).await;
            assert_eq!(Answer::decode(&answer), Ok(expected), "{asked}");
        }
    }

    #[tokio::test]
    async fn invalid_records_differ_from_failed_operations() {
        let store = Arc::new(KeyValue::in_memory().unwrap());
        let stores = stores(&store, "a", &[]);
        for lie in [&b""[..], &[0xff; 40], b"\x01\0\0\0d\x09"] {
            assert!(stores.answer(lie.to_vec()).await.is_err(), "{lie:?}");
        }
    }
}
