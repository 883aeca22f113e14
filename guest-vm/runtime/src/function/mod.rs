//! The steps of a function, from code in memory to an answered request.
//!
//! ```text
//! Linkers ┐                 ┌─ evaluate ─┐
//! Loaded ─┴► Prepared ──► Ready ◄─────────┘──► handle
//!            early freeze  late freeze; a language engine takes its script here, and
//!                          warm-up requests run here
//! ```
//!
//! All functions share the [`Linkers`]. Each step consumes the one before. None of the function's
//! own code has run in a [`Prepared`]. A [`Ready`] has run its instantiation and the exports that
//! it was to evaluate, and waits for its only request.

mod command;
mod entry;
mod script;
mod state_export;
mod warm_up;

use alloc::format;
use core::mem;
use core::ptr::NonNull;

use faasw_abi::outcome::Outcome;
use faasw_abi::script::{ENGINE_VERSION, SCRIPT_EXPORT};
use faasw_abi::state::{INITIALISER, RESUME};
use faasw_abi::store::RECORD_MAX;
use faasw_abi::wire::{FunctionKind, RequestHead, SeedConfig, SeedFiles};
use wasmtime::component::{self, Component, Resource};
use wasmtime::error::Context;
use wasmtime::{Engine, InstancePre, Linker, Module, Result, Store, TypedFunc};

use crate::cgi::Output;
use crate::draws::Draws;
use crate::failure::{Failure, PreparationFailure, RunEnd};
use crate::files::Files;
use crate::http::{IncomingRequest, ResponseOutparam};
use crate::platform::Platform;
use crate::state::{State, Stdio};
use crate::supported::{CLI_EXPORT, HTTP_EXPORT, WASI_VERSION};
use crate::{wasip1, wasip2};

use self::command::run_cli;

/// Maximum bytes that a component can pass to one host call: a record of its store, and what the
/// engine counts for lists in addition. This is more than any stream permits in one write. A larger
/// list is refused before it is copied.
const HOSTCALL_BYTES: usize = RECORD_MAX + (64 << 10);

/// Maximum number of handles that all instances of a component may hold together.
const MAX_HANDLES: usize = 64 << 10;

/// A function's code, found in memory and checked against the engine.
pub struct Loaded {
    code: Code,
    kind: FunctionKind,
}

enum Code {
    Component(Component),
    Module(Module),
}

impl Loaded {
    /// Loads the compiled code at `code` as a function of kind `kind`.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the code was made with other settings than `engine` has.
    ///
    /// # Safety
    /// `code` must come from the compile helper; it must begin on a page, and stay there unchanged
    /// for ever. The settings of [`crate::engine`] and the processor's instruction set are checked.
    pub unsafe fn from_raw(
        engine: &Engine,
        code: NonNull<[u8]>,
        kind: FunctionKind,
    ) -> Result<Self, Failure> {
        let code = match kind {
            FunctionKind::HttpComponent | FunctionKind::CliComponent => {
                // SAFETY: the caller's promise is what Wasmtime requires.
                unsafe { Component::deserialize_raw(engine, code) }.map(Code::Component)
            }
            FunctionKind::CgiModule => {
                // SAFETY: the caller's promise is what Wasmtime requires.
                unsafe { Module::deserialize_raw(engine, code) }.map(Code::Module)
            }
        };
        match code {
            Ok(code) => Ok(Self { code, kind }),
            Err(error) => Err(Failure::load(&error, None)),
        }
    }
}

impl Loaded {
    /// Returns whether the code takes a script, as language engines do.
    fn is_engine(&self) -> bool {
        match &self.code {
            Code::Component(component) => {
                let interface = format!("{SCRIPT_EXPORT}@{ENGINE_VERSION}");
                component.get_export_index(None, &interface).is_some()
            }
            Code::Module(_) => false,
        }
    }
}

/// Every import that a function of any kind can have, linked once for all functions.
pub struct Linkers<P: 'static> {
    engine: Engine,
    component: component::Linker<State<P>>,
    module: Linker<State<P>>,
}

impl<P: Platform> Linkers<P> {
    /// Links every supported import.
    ///
    /// # Errors
    /// Returns Wasmtime's error if memory runs out; the names are distinct.
    pub fn new(engine: &Engine) -> Result<Self> {
        Ok(Self {
            engine: engine.clone(),
            component: wasip2::linker(engine)?,
            module: wasip1::linker(engine)?,
        })
    }

    /// Returns the engine of the linkers.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}

/// A function with its imports linked and its store made, none of whose code has run.
pub struct Prepared<P: 'static> {
    store: Store<State<P>>,
    linked: Linked<P>,
    kind: FunctionKind,
    tells_state: bool,
    has_entry: bool,
}

enum Linked<P: 'static> {
    Component(component::InstancePre<State<P>>),
    Module(InstancePre<State<P>>),
}

impl<P: Platform> Linked<P> {
    fn new(linkers: &Linkers<P>, code: &Code) -> Result<Self> {
        Ok(match code {
            Code::Component(component) => {
                Self::Component(linkers.component.instantiate_pre(component)?)
            }
            Code::Module(module) => Self::Module(linkers.module.instantiate_pre(module)?),
        })
    }
}

impl<P: Platform> Prepared<P> {
    /// Links the function and makes its store. `files` is the bundle that `config` announces, if it
    /// does.
    ///
    /// # Errors
    /// Returns an [`PreparationFailure`] if an import does not exist or has another type, if the
    /// bundle is invalid, or if the file that is its func-entry point does not exist.
    pub fn new(
        linkers: &Linkers<P>,
        loaded: Loaded,
        mut config: SeedConfig,
        files: Option<&'static [u8]>,
        platform: P,
    ) -> Result<Self, PreparationFailure<P>> {
        let files = files.zip(config.files.take());
        let files = files.map(|(bundle, config)| files_of(bundle, config));
        let linked = Linked::new(linkers, &loaded.code);
        let linked = linked.map_err(|error| Failure::load(&error, None));
        let (files, linked) = match files.transpose().and_then(|files| Ok((files, linked?))) {
            Ok(prepared) => prepared,
            Err(failure) => return Err(PreparationFailure { platform, failure }),
        };
        let files = files.or_else(|| loaded.is_engine().then(Files::of_engine));
        let stdio = match loaded.kind {
            FunctionKind::HttpComponent => Stdio::Log,
            FunctionKind::CliComponent | FunctionKind::CgiModule => {
                Stdio::Command(Output::default())
            }
        };
        let (tells_state, has_entry) = (config.tells_state, config.has_entry);
        let mut store = Store::new(&linkers.engine, State::new(config, stdio, files, platform));
        store.limiter(|state| &mut state.memory);
        store.set_hostcall_fuel(HOSTCALL_BYTES);
        store.set_max_component_handles(MAX_HANDLES);
        Ok(Self {
            store,
            linked,
            kind: loaded.kind,
            tells_state,
            has_entry,
        })
    }

    /// Instantiates the function, which runs its code before any request.
    ///
    /// # Errors
    /// Returns an [`PreparationFailure`] if that code traps or exits, if the function needs more
    /// memory than it may have, or if it lacks the export that its kind requires.
    pub fn instantiate(mut self) -> Result<Ready<P>, PreparationFailure<P>> {
        match Entry::find(&mut self.store, &self.linked, self.kind) {
            Ok((entry, instance)) => {
                self.store.data_mut().memory.started();
                Ok(Ready {
                    store: self.store,
                    entry,
                    instance,
                    tells_state: self.tells_state,
                    has_entry: self.has_entry,
                })
            }
            Err(error) => {
                let state = self.store.into_data();
                Err(PreparationFailure {
                    failure: Failure::load(&error, Some(&state.memory)),
                    platform: state.platform.inner,
                })
            }
        }
    }

    /// Returns the platform.
    pub fn platform(&self) -> &P {
        &self.store.data().platform.inner
    }

    /// Returns the platform for changes.
    pub fn platform_mut(&mut self) -> &mut P {
        &mut self.store.data_mut().platform.inner
    }
}

/// `wasi:http/incoming-handler#handle`.
type HttpEntry = component::TypedFunc<(Resource<IncomingRequest>, Resource<ResponseOutparam>), ()>;

/// `wasi:cli/run#run`.
type CliEntry = component::TypedFunc<(), (Result<(), ()>,)>;

/// Returns the files of a bundle, as a function sees them.
fn files_of(bundle: &'static [u8], config: SeedFiles) -> Result<Files, Failure> {
    let refused = |report| Failure::new(Outcome::LoadFailed, report);
    let files = Files::new(bundle, config.mount);
    let mut files = files.map_err(|error| refused(format!("{error}")))?;
    if let Some(path) = config.freeze_at {
        let found = files.freeze_at(&path);
        found.map_err(|_| {
            refused(format!(
                "the freeze path {path} is not one of the function's files"
            ))
        })?;
    }
    Ok(files)
}

/// The export that answers a request.
#[derive(Clone)]
enum Entry {
    Http(HttpEntry),
    Cli(CliEntry),
    Cgi(TypedFunc<(), ()>),
}

/// The instance, which holds a function's exports.
#[derive(Clone, Copy)]
enum Instance {
    Component(component::Instance),
    Module(wasmtime::Instance),
}

impl Entry {
    /// Instantiates the function and finds its entry.
    fn find<P: Platform>(
        store: &mut Store<State<P>>,
        linked: &Linked<P>,
        kind: FunctionKind,
    ) -> Result<(Self, Instance)> {
        match linked {
            Linked::Module(linked) => {
                let instance = linked.instantiate(&mut *store)?;
                let start = instance.get_typed_func(store, "_start");
                let start = start.context("the module is not a command")?;
                Ok((Self::Cgi(start), Instance::Module(instance)))
            }
            Linked::Component(linked) => {
                let instance = linked.instantiate(&mut *store)?;
                let entry = match kind {
                    FunctionKind::HttpComponent => {
                        let handler = format!("{HTTP_EXPORT}@{WASI_VERSION}");
                        Self::Http(exported(store, instance, &handler, "handle")?)
                    }
                    FunctionKind::CliComponent | FunctionKind::CgiModule => {
                        let command = format!("{CLI_EXPORT}@{WASI_VERSION}");
                        Self::Cli(exported(store, instance, &command, "run")?)
                    }
                };
                Ok((entry, Instance::Component(instance)))
            }
        }
    }
}

/// Returns a function of an interface that a component exports, in any version that is compatible
/// with the named one.
fn exported<P, Arguments, Results>(
    store: &mut Store<State<P>>,
    instance: component::Instance,
    interface: &str,
    function: &str,
) -> Result<component::TypedFunc<Arguments, Results>>
where
    P: Platform,
    Arguments: component::ComponentNamedList + component::Lower,
    Results: component::ComponentNamedList + component::Lift,
{
    let index = instance
        .get_export_index(&mut *store, None, interface)
        .and_then(|interface| instance.get_export_index(&mut *store, Some(&interface), function));
    match index {
        Some(index) => instance.get_typed_func(store, index),
        None => wasmtime::bail!(
            "the component does not export {interface}#{function}, in this version or a lower one"
        ),
    }
}

/// Returns a function that a component exports, by its own name or as `interface#name`.
fn initializer<P: Platform>(
    store: &mut Store<State<P>>,
    instance: component::Instance,
    export: &str,
) -> Result<component::TypedFunc<(), ()>> {
    let (interface, name) = match export.rsplit_once('#') {
        Some((interface, name)) => (
            instance.get_export_index(&mut *store, None, interface),
            name,
        ),
        None => (None, export),
    };
    if interface.is_none() && name != export {
        wasmtime::bail!("no interface of that name is exported");
    }
    match instance.get_export_index(&mut *store, interface.as_ref(), name) {
        Some(index) => instance.get_typed_func(store, index),
        None => wasmtime::bail!("nothing of that name is exported"),
    }
}

/// An instantiated function that waits for its request.
pub struct Ready<P: 'static> {
    store: Store<State<P>>,
    entry: Entry,
    instance: Instance,
    tells_state: bool,
    has_entry: bool,
}

impl<P: Platform> Ready<P> {
    /// Calls an export that has neither parameters nor results, before any request. A function of a
    /// component's exported interface is named `interface#name`. A module that is initialised by
    /// [`INITIALISER`] then answers by [`RESUME`], if it has that export. Standard output during
    /// the call goes to the log, and reads count as drawn.
    ///
    /// # Errors
    /// Returns a [`Failure`] if there is no such export, or if the call traps or exits with a code
    /// other than 0. The function must not be used any more then.
    pub fn evaluate(&mut self, export: &str) -> Result<(), Failure> {
        let stdio = mem::replace(&mut self.store.data_mut().stdio, Stdio::Log);
        let evaluated = self.call(export);
        self.store.data_mut().stdio = stdio;
        if let (INITIALISER, Instance::Module(instance)) = (export, self.instance)
            && let Ok(resume) = instance.get_typed_func(&mut self.store, RESUME)
        {
            self.entry = Entry::Cgi(resume);
        }
        evaluated
    }

    fn call(&mut self, export: &str) -> Result<(), Failure> {
        let store = &mut self.store;
        let called = match self.instance {
            Instance::Module(instance) => instance
                .get_typed_func::<(), ()>(&mut *store, export)
                .map(|function| function.call(&mut *store, ())),
            Instance::Component(instance) => {
                initializer(store, instance, export).map(|function| function.call(&mut *store, ()))
            }
        };
        match called.with_context(|| format!("the export {export:?} cannot be evaluated")) {
            Ok(called) => self.ended_well(called),
            Err(error) => Err(Failure::load(&error, None)),
        }
    }

    /// Answers one request; the platform has the complete response when this returns.
    ///
    /// A function instance serves one request: a second call finds the state that the first left
    /// behind.
    ///
    /// # Errors
    /// Returns a [`Failure`] if there is no response, or an incomplete one. The platform may have
    /// received a part of it, whose body was never finished.
    pub fn handle(&mut self, request: RequestHead) -> Result<(), Failure> {
        let is_command = !matches!(self.entry, Entry::Http(_));
        // If the function reached its entry point during instantiation, its request begins after
        // that.
        if is_command && self.has_entry && self.store.data().may_enter {
            return self.run_to_entry();
        }
        let state = self.store.data_mut();
        state.draws.close();
        state.may_enter = false;
        state.invocation.begin(&request);
        if self.tells_state {
            return self.send_state();
        }
        match self.entry.clone() {
            Entry::Http(handle) => self.handle_http(handle, request),
            Entry::Cli(run) => self.handle_command(&request, |store| run_cli(&run, store)),
            Entry::Cgi(start) => self.handle_command(&request, |store| start.call(store, ())),
        }
    }

    fn handle_http(&mut self, handle: HttpEntry, request: RequestHead) -> Result<(), Failure> {
        let called = self.call_handler(&handle, request);
        self.ended_well(called)?;
        self.conclude()
    }

    fn call_handler(&mut self, handle: &HttpEntry, request: RequestHead) -> Result<()> {
        let state = self.store.data_mut();
        let request = IncomingRequest::new(state.invocation.number, request);
        let request = state.table.push(request)?;
        let response = state.table.push(ResponseOutparam)?;
        handle.call(&mut self.store, (request, response))
    }

    /// Concludes the invocation after the handler returned.
    fn conclude(&mut self) -> Result<(), Failure> {
        let state = self.store.data_mut();
        state
            .invocation
            .conclude(&mut state.platform)
            .map_err(|failure| failure.noting(&state.memory))
    }

    /// Treats an exit with code 0 like a return.
    fn ended_well(&self, result: Result<()>) -> Result<(), Failure> {
        match result {
            Ok(()) => Ok(()),
            Err(error) => match error.downcast_ref() {
                Some(RunEnd::Exit(0)) => Ok(()),
                _ => Err(Failure::run(&error, &self.store.data().memory)),
            },
        }
    }

    /// Returns the draws of the function before its first request.
    pub fn draws(&self) -> &Draws {
        &self.store.data().draws
    }

    /// Returns the platform.
    pub fn platform(&self) -> &P {
        &self.store.data().platform.inner
    }

    /// Returns the platform for changes.
    pub fn platform_mut(&mut self) -> &mut P {
        &mut self.store.data_mut().platform.inner
    }
}
