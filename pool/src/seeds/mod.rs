//! The tree of seeds: functions, the seeds that their instances are forked from, and the memory
//! they hold.
//!
//! `graph`: which seeds are to be made, and which are in memory; it runs each step (`recipe`) once,
//! however many callers wait. `making` runs a guest to a freeze point (the root's from
//! `boot_image`), by the steps of `version` or `engine`. `function` is a version with a handle of
//! its seed, `language_engine` an engine with one. `holding`: the memory that a function holds, and
//! what of it is evicted. `tree`: all of these; `later`: seeds made ahead of requests; `slots`: how
//! many seeds are made at once, and in which order.

mod boot_image;
mod engine;
mod function;
mod graph;
mod holding;
mod language_engine;
mod later;
mod library;
mod making;
mod own_log;
mod recipe;
mod slots;
mod spec;
#[cfg(feature = "trial")]
mod step;
mod tree;
mod version;

pub use self::function::{Busy, FunctionVersion, Origin, WeakVersion};
pub use self::graph::Held;
#[cfg(feature = "trial")]
pub use self::graph::{For, Seeds};
pub use self::holding::FunctionNumber;
pub use self::language_engine::LanguageEngine;
pub use self::later::adopt;
#[cfg(feature = "trial")]
pub use self::making::{Making, MakingContext};
#[cfg(feature = "trial")]
pub use self::recipe::Recipe;
#[cfg(feature = "trial")]
pub use self::slots::SeedPermit;
pub use self::slots::SeedSlots;
pub use self::spec::{
    FreezePolicy, FreezeReport, FunctionFiles, FunctionSpec, Known, Script, ScriptFiles,
    ScriptSource, WarmUp,
};
#[cfg(feature = "trial")]
pub use self::step::{Guest, Step};
pub use self::tree::Tree;
