//! Turns a tenant's upload into an artifact that the guest can run.
//!
//! This is the only place that parses tenant Wasm on the host, and the only one
//! that links Cranelift. It runs as a process of its own, confined and limited
//! by whoever starts it ([`faasw_compile_report::contract`]); nothing here
//! trusts the input, and nothing here runs what it compiles.
//!
//! [`compile`] reads top to bottom:
//!
//! - `source`: binary, text, or something else that is named for what it is.
//! - `inspect`: what kind of function it is, what it imports, what memory it
//!   starts with; `outline` reads it, `module` and `component` apply the rules of each.
//! - `supported`: the imports that a function may have.
//! - `artifact`: the compilation itself.
//!
//! The program is `faasw-compiler`. What it is made of beside that is here, too, so
//! that tests can be a helper that does something else than compile:
//!
//! - [`helper`]: the process, from its arguments to its report.
//! - [`cell`]: what is round it. [`exhaustion`]: what running out of memory does.
//!   `descriptors`: the files that it is given.
#![deny(unsafe_code)]

mod advice;
mod artifact;
pub mod cell;
mod component;
mod descriptors;
pub mod exhaustion;
pub mod helper;
mod inspect;
mod interface;
mod module;
mod outline;
mod preview1;
mod source;
mod supported;

use faasw_abi::isa::Isa;
use faasw_compile_report::{Compiled, Refusal};

/// A function and the code made of it.
#[derive(Debug)]
pub struct Artifact {
    /// What the report says of it; `cpu_milliseconds` is left for the process to fill in.
    pub compiled: Compiled,
    /// What the guest loads.
    pub code: Vec<u8>,
}

/// Compiles an upload for `isa`.
///
/// The same bytes give the same artifact, on any machine.
///
/// # Errors
/// A [`Refusal`] that says what is wrong with the upload and what to do next.
pub fn compile(upload: &[u8], isa: Isa) -> Result<Artifact, Refusal> {
    let source = source::read(upload)?;
    let function = inspect::inspect(&source.wasm)?;
    let code = artifact::compile(&source.wasm, function.kind, isa)?;
    let compiled = Compiled {
        kind: function.kind,
        name_hint: function.name_hint,
        imports: function.imports,
        initial_memory_bytes: function.initial_memory_bytes,
        code_bytes: code.len().try_into().unwrap_or(u64::MAX),
        cpu_milliseconds: 0,
        from_text: source.from_text,
    };
    Ok(Artifact { compiled, code })
}
