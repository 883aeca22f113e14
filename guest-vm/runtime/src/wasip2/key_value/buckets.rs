//! The functions that all interfaces of a store have, each with an error type of its own.

use alloc::string::String;
use alloc::vec::Vec;

use wasmtime::Result;
use wasmtime::component::{ComponentType, Lift, LinkerInstance, Lower, Resource, ResourceType};

use super::Bucket;
use super::store_calls::{Refusal, StoreResult};
use crate::platform::Platform;
use crate::state::State;
use crate::wasip2::Caller;

/// The name of a function in its interface, and in reports.
type Name = (&'static str, &'static str);

/// The names of a store's functions.
pub(super) struct Calls {
    pub(super) open: Name,
    pub(super) get: Name,
    pub(super) set: Name,
    pub(super) delete: Name,
    pub(super) exists: Name,
}

/// The result of a function of these interfaces.
pub(super) type HostResult<T, E> = Result<(core::result::Result<T, E>,)>;

/// Converts a result to an interface's own error type.
pub(super) fn answered<T, E: From<Refusal>>(asked: StoreResult<T>) -> HostResult<T, E> {
    Ok((asked?.map_err(E::from),))
}

/// Adds the resource of a store.
///
/// # Errors
/// Returns Wasmtime's error if memory runs out; the names are distinct.
pub(super) fn add_resource<P: Platform>(
    instance: &mut LinkerInstance<'_, State<P>>,
    name: &str,
) -> Result<()> {
    instance.resource(
        name,
        ResourceType::host::<Bucket>(),
        |mut store: Caller<'_, P>, handle| {
            let bucket = Resource::<Bucket>::new_own(handle);
            store.data_mut().table.delete(bucket)?;
            Ok(())
        },
    )
}

/// Adds the functions of a store.
///
/// # Errors
/// Returns the errors of [`add_resource`].
pub(super) fn add<P, E>(instance: &mut LinkerInstance<'_, State<P>>, calls: &Calls) -> Result<()>
where
    P: Platform,
    E: From<Refusal> + ComponentType + Lift + Lower + Send + Sync + 'static,
{
    let (name, import) = calls.open;
    instance.func_wrap(
        name,
        move |mut caller: Caller<'_, P>, (name,): (String,)| {
            answered::<_, E>(caller.data_mut().open_bucket(import, name))
        },
    )?;
    let (name, import) = calls.get;
    instance.func_wrap(
        name,
        move |mut caller: Caller<'_, P>, (bucket, key): (Resource<Bucket>, String)| {
            answered::<_, E>(caller.data_mut().value(import, &bucket, key))
        },
    )?;
    let (name, import) = calls.set;
    instance.func_wrap(
        name,
        move |mut caller: Caller<'_, P>,
              (bucket, key, value): (Resource<Bucket>, String, Vec<u8>)| {
            let pairs = [(key, value)];
            answered::<_, E>(caller.data_mut().set_values(import, &bucket, &pairs))
        },
    )?;
    let (name, import) = calls.delete;
    instance.func_wrap(
        name,
        move |mut caller: Caller<'_, P>, (bucket, key): (Resource<Bucket>, String)| {
            answered::<_, E>(caller.data_mut().delete_keys(import, &bucket, &[key]))
        },
    )?;
    let (name, import) = calls.exists;
    instance.func_wrap(
        name,
        move |mut caller: Caller<'_, P>, (bucket, key): (Resource<Bucket>, String)| {
            answered::<_, E>(caller.data_mut().has_key(import, &bucket, &key))
        },
    )
}
