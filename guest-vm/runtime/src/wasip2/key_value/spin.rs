//! `fermyon:spin/key-value`.

use alloc::string::String;
use alloc::vec::Vec;

use faasw_abi::store::SPIN_KEY_VALUE;
use wasmtime::component::{ComponentType, Lift, Linker, Lower, Resource, ResourceType};
use wasmtime::{Result, StoreContextMut};

use super::Bucket;
use super::ask::Refusal;
use crate::platform::Platform;
use crate::state::State;

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

type Answered<T> = Result<(core::result::Result<T, Error>,)>;

fn answered<T>(asked: super::ask::Asked<T>) -> Answered<T> {
    Ok((asked?.map_err(Error::from),))
}

/// Adds the interface.
///
/// # Errors
/// When memory runs out; the names are distinct.
pub(super) fn add_to_linker<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    let mut instance = linker.instance(SPIN_KEY_VALUE)?;
    instance.resource(
        "store",
        ResourceType::host::<Bucket>(),
        |mut store: StoreContextMut<'_, State<P>>, handle| {
            let bucket = Resource::<Bucket>::new_own(handle);
            store.data_mut().table.delete(bucket)?;
            Ok(())
        },
    )?;
    instance.func_wrap(
        "[static]store.open",
        |mut store: StoreContextMut<'_, State<P>>, (label,): (String,)| {
            let import = "fermyon:spin/key-value#store.open";
            answered(store.data_mut().open_bucket(import, label))
        },
    )?;
    instance.func_wrap(
        "[method]store.get",
        |mut store: StoreContextMut<'_, State<P>>, (bucket, key): (Resource<Bucket>, String)| {
            let import = "fermyon:spin/key-value#store.get";
            answered(store.data_mut().value(import, &bucket, key))
        },
    )?;
    instance.func_wrap(
        "[method]store.set",
        |mut store: StoreContextMut<'_, State<P>>,
         (bucket, key, value): (Resource<Bucket>, String, Vec<u8>)| {
            let import = "fermyon:spin/key-value#store.set";
            answered(
                store
                    .data_mut()
                    .set_values(import, &bucket, &[(key, value)]),
            )
        },
    )?;
    instance.func_wrap(
        "[method]store.delete",
        |mut store: StoreContextMut<'_, State<P>>, (bucket, key): (Resource<Bucket>, String)| {
            let import = "fermyon:spin/key-value#store.delete";
            answered(store.data_mut().delete_keys(import, &bucket, &[key]))
        },
    )?;
    instance.func_wrap(
        "[method]store.exists",
        |mut store: StoreContextMut<'_, State<P>>, (bucket, key): (Resource<Bucket>, String)| {
            let import = "fermyon:spin/key-value#store.exists";
            answered(store.data_mut().has_key(import, &bucket, &key))
        },
    )?;
    instance.func_wrap(
        "[method]store.get-keys",
        |mut store: StoreContextMut<'_, State<P>>, (bucket,): (Resource<Bucket>,)| {
            let import = "fermyon:spin/key-value#store.get-keys";
            answered(store.data_mut().all_keys(import, &bucket))
        },
    )
}
