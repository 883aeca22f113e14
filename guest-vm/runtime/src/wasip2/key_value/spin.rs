//! `fermyon:spin/key-value`.

use alloc::string::String;

use faasw_abi::store::SPIN_KEY_VALUE;
use wasmtime::Result;
use wasmtime::component::{ComponentType, Lift, Linker, Lower, Resource};

use super::Bucket;
use super::buckets::{self, Calls};
use super::store_calls::Refusal;
use crate::platform::Platform;
use crate::state::State;
use crate::wasip2::Caller;

/// `fermyon:spin/key-value.error`.
#[derive(Clone, Debug, ComponentType, Lift, Lower)]
#[component(variant)]
enum Error {
    #[component(name = "store-table-full")]
    StoreTableFull,
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

/// The functions of a store except its listing, by name and by their names in reports.
const CALLS: Calls = Calls {
    open: ("[static]store.open", "fermyon:spin/key-value#store.open"),
    get: ("[method]store.get", "fermyon:spin/key-value#store.get"),
    set: ("[method]store.set", "fermyon:spin/key-value#store.set"),
    delete: (
        "[method]store.delete",
        "fermyon:spin/key-value#store.delete",
    ),
    exists: (
        "[method]store.exists",
        "fermyon:spin/key-value#store.exists",
    ),
};

/// Adds the interface.
///
/// # Errors
/// Returns Wasmtime's error if memory runs out; the names are distinct.
pub(super) fn add_to_linker<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    let mut instance = linker.instance(SPIN_KEY_VALUE)?;
    buckets::add_resource(&mut instance, "store")?;
    buckets::add::<P, Error>(&mut instance, &CALLS)?;
    instance.func_wrap(
        "[method]store.get-keys",
        |mut store: Caller<'_, P>, (bucket,): (Resource<Bucket>,)| {
            let import = "fermyon:spin/key-value#store.get-keys";
            buckets::answered::<_, Error>(store.data_mut().all_keys(import, &bucket))
        },
    )
}
