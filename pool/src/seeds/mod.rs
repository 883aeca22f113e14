//! The tree of seeds: functions, what their instances are forked from, what they hold.
//!
//! `graph`: which seeds there are to be made, and which are in memory; it has each step (`recipe`)
//! done once, however many wait. `making` runs a guest to a freeze point (the root's from
//! `boot_image`), by way of `version` or `engine`. `function` is a version with a handle of its
//! seed, `language_engine` an engine with one; `holding`: what a function has in memory, and what
//! of it goes. `tree`: all of them; `later`: seeds made ahead of requests; `slots`: how many are
//! made at once, and for whom first.

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
