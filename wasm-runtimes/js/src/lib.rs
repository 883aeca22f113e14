//! The JavaScript engine of faasw: QuickJS-ng, with the web interfaces that servers have.
//!
//! The engine's life has three parts. When the component is instantiated, `_initialize` makes the
//! interpreter and evaluates the built-in code, which all scripts share. `init` runs a script's
//! modules, once, when the script is deployed. `handle` calls the handler, in a fork, once.
//!
//! Code that runs often or is long is native (`native.rs` lists it). The classes around it are
//! JavaScript (`web/`), because the interpreter calls JavaScript functions more cheaply than native
//! ones.

mod arena;
mod builtins;
mod commonjs;
mod compression;
mod content_coding;
mod crypto;
mod event_loop;
mod exchange;
mod export_names;
mod faasw_module;
mod files;
mod forms;
mod interpreter;
mod json;
mod mappings;
mod memory;
mod modules;
mod native;
mod outbound;
mod outbound_errors;
mod outbound_native;
mod random;
mod script_error;
mod settings;
mod source_maps;
mod stores;
mod text;
mod urls;

mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "engine", generate_all });
}

use bindings::{
    exports::{
        faasw::engine::script::{Error, Guest as Script},
        wasi::http::incoming_handler::Guest as Handler,
    },
    wasi::http::types::{IncomingRequest, ResponseOutparam},
};

struct Engine;

impl Script for Engine {
    fn init(files: Vec<(String, Vec<u8>)>) -> Result<(), Error> {
        interpreter::init(files)
    }
}

impl Handler for Engine {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        interpreter::handle(request, out);
    }
}

bindings::export!(Engine with_types_in bindings);

unsafe extern "C" {
    fn __wasm_call_ctors();
}

/// Initialises the engine when the component is instantiated.
#[unsafe(no_mangle)]
pub extern "C" fn _initialize() {
    // SAFETY: this is the linker's function, which is called once, before anything else.
    unsafe { __wasm_call_ctors() };
    interpreter::begin();
}
