//! `wasi:keyvalue`, two drafts of it. A list's cursor is a number in one and a text in the other,
//! numbers are signed in the newer one only, and so on. Their common parts are written once.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use faasw_abi::store::{DRAFT, DRAFT2, Draft, ListFrom};
use wasmtime::Result;
use wasmtime::component::{ComponentType, Lift, Linker, Lower, Resource, ResourceType};

use super::Bucket;
use super::buckets::{self, Calls, HostResult};
use super::store_calls::{Page, Refusal, StoreResult};
use crate::platform::Platform;
use crate::state::State;
use crate::wasip2::Caller;

/// `wasi:keyvalue/store.error`.
#[derive(Clone, Debug, ComponentType, Lift, Lower)]
#[component(variant)]
enum Error {
    #[component(name = "no-such-store")]
    NoSuchStore,
    #[component(name = "access-denied")]
    AccessDenied,
    #[component(name = "other")]
    Other(String),
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoSuchStore => Self::NoSuchStore,
            Refusal::Denied => Self::AccessDenied,
            Refusal::Other(why) => Self::Other(why),
        }
    }
}

/// `wasi:keyvalue/store.key-response`, with the cursor type of either draft.
#[derive(Clone, Debug, ComponentType, Lift, Lower)]
#[component(record)]
struct KeyResponse<C> {
    #[component(name = "keys")]
    keys: Vec<String>,
    #[component(name = "cursor")]
    cursor: Option<C>,
}

/// A compare-and-swap: the value of a key when it was last read.
struct Cas {
    store: String,
    key: String,
    seen: Option<Vec<u8>>,
}

/// `wasi:keyvalue/atomics.cas-error`.
#[derive(ComponentType, Lift, Lower)]
#[component(variant)]
enum CasError {
    #[component(name = "store-error")]
    StoreError(Error),
    #[component(name = "cas-failed")]
    CasFailed(Resource<Cas>),
}

/// The functions of a bucket in both drafts, by name and by their names in reports.
const CALLS: Calls = Calls {
    open: ("open", "wasi:keyvalue/store#open"),
    get: ("[method]bucket.get", "wasi:keyvalue/store#bucket.get"),
    set: ("[method]bucket.set", "wasi:keyvalue/store#bucket.set"),
    delete: ("[method]bucket.delete", "wasi:keyvalue/store#bucket.delete"),
    exists: ("[method]bucket.exists", "wasi:keyvalue/store#bucket.exists"),
};

fn answered<T>(asked: StoreResult<T>) -> HostResult<T, Error> {
    buckets::answered(asked)
}

/// Adds the interfaces of both drafts.
///
/// # Errors
/// Returns Wasmtime's error if memory runs out; the names are distinct.
pub(super) fn add_to_linker<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    for draft in [DRAFT, DRAFT2] {
        let mut store = linker.instance(draft.store)?;
        buckets::add_resource(&mut store, "bucket")?;
        buckets::add::<P, Error>(&mut store, &CALLS)?;
        add_batch(linker, draft)?;
    }
    add_older_draft(linker)?;
    add_newer_draft(linker)
}

fn add_batch<P: Platform>(linker: &mut Linker<State<P>>, draft: Draft) -> Result<()> {
    let mut instance = linker.instance(draft.batch)?;
    instance.func_wrap(
        "set-many",
        |mut store: Caller<'_, P>, (bucket, pairs): (Resource<Bucket>, Vec<(String, Vec<u8>)>)| {
            let import = "wasi:keyvalue/batch#set-many";
            answered(store.data_mut().set_values(import, &bucket, &pairs))
        },
    )?;
    instance.func_wrap(
        "delete-many",
        |mut store: Caller<'_, P>, (bucket, keys): (Resource<Bucket>, Vec<String>)| {
            let import = "wasi:keyvalue/batch#delete-many";
            answered(store.data_mut().delete_keys(import, &bucket, &keys))
        },
    )
}

const LIST_KEYS: &str = "wasi:keyvalue/store#bucket.list-keys";
const GET_MANY: &str = "wasi:keyvalue/batch#get-many";
const INCREMENT: &str = "wasi:keyvalue/atomics#increment";

fn add_older_draft<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    linker.instance(DRAFT.store)?.func_wrap(
        "[method]bucket.list-keys",
        |mut store: Caller<'_, P>, (bucket, cursor): (Resource<Bucket>, Option<u64>)| {
            // Number of keys that were listed before.
            let passed = cursor.unwrap_or(0);
            let from = ListFrom::Number(passed);
            let page = store.data_mut().some_keys(LIST_KEYS, &bucket, from)?;
            let response = page.map(|Page { keys, has_more }| KeyResponse {
                cursor: has_more.then(|| passed.saturating_add(keys.len() as u64)),
                keys,
            });
            answered(Ok(response))
        },
    )?;
    linker.instance(DRAFT.batch)?.func_wrap(
        "get-many",
        |mut store: Caller<'_, P>, (bucket, keys): (Resource<Bucket>, Vec<String>)| {
            let values = store.data_mut().values(GET_MANY, &bucket, &keys)?;
            let pairs = values.map(|values| {
                let pairs = keys.into_iter().zip(values);
                let pairs = pairs.map(|(key, value)| value.map(|value| (key, value)));
                pairs.collect::<Vec<_>>()
            });
            answered(Ok(pairs))
        },
    )?;
    linker.instance(DRAFT.atomics)?.func_wrap(
        "increment",
        |mut store: Caller<'_, P>, (bucket, key, delta): (Resource<Bucket>, String, u64)| {
            let Ok(signed) = i64::try_from(delta) else {
                let why = format!("{delta} is too large for a store's counter");
                return Ok((Err(Error::Other(why)),));
            };
            let number = store.data_mut().add(INCREMENT, &bucket, &key, signed)?;
            let number = number.and_then(|number| {
                // A caller that takes the addition for undone would count twice.
                let why =
                    || format!("the number is now {number}, which this draft cannot represent");
                u64::try_from(number).map_err(|_| Refusal::Other(why()))
            });
            answered(Ok(number))
        },
    )
}

fn add_newer_draft<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    linker.instance(DRAFT2.store)?.func_wrap(
        "[method]bucket.list-keys",
        |mut store: Caller<'_, P>, (bucket, cursor): (Resource<Bucket>, Option<String>)| {
            // The last key that was listed before.
            let from = match &cursor {
                Some(key) => ListFrom::Behind(key.as_bytes()),
                None => ListFrom::Start,
            };
            let page = store.data_mut().some_keys(LIST_KEYS, &bucket, from)?;
            let response = page.map(|Page { keys, has_more }| KeyResponse {
                cursor: keys.last().filter(|_| has_more).cloned(),
                keys,
            });
            answered(Ok(response))
        },
    )?;
    linker.instance(DRAFT2.batch)?.func_wrap(
        "get-many",
        |mut store: Caller<'_, P>, (bucket, keys): (Resource<Bucket>, Vec<String>)| {
            let values = store.data_mut().values(GET_MANY, &bucket, &keys)?;
            let pairs = values.map(|values| keys.into_iter().zip(values).collect::<Vec<_>>());
            answered(Ok(pairs))
        },
    )?;
    let mut atomics = linker.instance(DRAFT2.atomics)?;
    atomics.func_wrap(
        "increment",
        |mut store: Caller<'_, P>, (bucket, key, delta): (Resource<Bucket>, String, i64)| {
            answered(store.data_mut().add(INCREMENT, &bucket, &key, delta))
        },
    )?;
    add_swap(&mut atomics)
}

fn add_swap<P: Platform>(
    atomics: &mut wasmtime::component::LinkerInstance<'_, State<P>>,
) -> Result<()> {
    atomics.resource(
        "cas",
        ResourceType::host::<Cas>(),
        |mut store: Caller<'_, P>, handle| {
            store
                .data_mut()
                .table
                .delete(Resource::<Cas>::new_own(handle))?;
            Ok(())
        },
    )?;
    atomics.func_wrap(
        "[static]cas.new",
        |mut store: Caller<'_, P>, (bucket, key): (Resource<Bucket>, String)| {
            let state = store.data_mut();
            let import = "wasi:keyvalue/atomics#cas.new";
            let seen = match state.value(import, &bucket, key.clone())? {
                Ok(seen) => seen,
                Err(refusal) => return Ok((Err(refusal.into()),)),
            };
            let store = state.table.get(&bucket)?.name.clone();
            let made: core::result::Result<_, Error> =
                Ok(state.table.push(Cas { store, key, seen })?);
            Ok((made,))
        },
    )?;
    atomics.func_wrap(
        "[method]cas.current",
        |store: Caller<'_, P>, (cas,): (Resource<Cas>,)| {
            let seen = store.data().table.get(&cas)?.seen.clone();
            let seen: core::result::Result<_, Error> = Ok(seen);
            Ok((seen,))
        },
    )?;
    atomics.func_wrap(
        "swap",
        |mut store: Caller<'_, P>, (cas, value): (Resource<Cas>, Vec<u8>)| {
            let state = store.data_mut();
            let Cas { store, key, seen } = state.table.delete(cas)?;
            Ok((
                match state.swap_value(&store, &key, seen.as_deref(), &value) {
                    Ok(Ok(())) => Ok(()),
                    // The next try uses a new compare-and-swap with the current value.
                    Ok(Err(seen)) => {
                        let again = state.table.push(Cas { store, key, seen })?;
                        Err(CasError::CasFailed(again))
                    }
                    Err(refusal) => Err(CasError::StoreError(refusal.into())),
                },
            ))
        },
    )
}
