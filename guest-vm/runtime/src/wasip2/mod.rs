//! WASI 0.2 for components, their other imports, and the linker with all of it.
//!
//! Everything is defined once, at the newest 0.2 version. Wasmtime matches versions by semver, so
//! components that import 0.2.0, or several versions side by side, find it. Drafts count as
//! different interfaces, each defined by its name.

pub(crate) mod bindings;
mod cli;
mod clocks;
mod config;
pub(crate) mod files;
mod grants;
mod key_value;
pub(crate) mod poll;
mod random;
mod refused;
pub(crate) mod streams;

use core::marker::PhantomData;

use wasmtime::component::{HasData, Linker};
use wasmtime::{Engine, Result, StoreContextMut};

use self::bindings::faasw::function::entry;
use crate::platform::Platform;
use crate::state::State;

/// The store of a function that calls the host.
type Caller<'a, P> = StoreContextMut<'a, State<P>>;

/// Selects the whole state as the data of the generated bindings.
struct StateData<P>(PhantomData<P>);

impl<P: Platform> HasData for StateData<P> {
    type Data<'a> = &'a mut State<P>;
}

impl<P: Platform> entry::Host for State<P> {
    fn freeze(&mut self) -> Result<()> {
        self.enter()
    }
}

/// Returns a linker with every import that a component may have.
///
/// # Errors
/// Returns Wasmtime's error if memory runs out; the names are distinct.
pub(crate) fn linker<P: Platform>(engine: &Engine) -> Result<Linker<State<P>>> {
    let mut linker = Linker::new(engine);
    bindings::Implemented::add_to_linker::<_, StateData<P>>(
        &mut linker,
        &bindings::LinkOptions::default(),
        |state| state,
    )?;
    config::add_to_linker(&mut linker)?;
    key_value::add_to_linker(&mut linker)?;
    refused::add_to_linker(&mut linker)?;
    Ok(linker)
}
