//! The tree of seeds: functions, the seeds that their instances are forked from, and the memory
//! they hold.
//!
//! `graph`: which seeds are to be made, and which are in memory; it runs each step (`seed_step`)
//! once, however many callers wait. `seed_build` runs a guest to a freeze point (the root's from
//! `boot_image`), by the steps of `function_step` or `engine_step`. `function` is a version with a
//! handle of its seed, `language_engine` an engine with one. `function_memory`: the memory that a
//! function holds, and what of it is evicted. `tree`: all of these; `background_build`: seeds made
//! in the background; `slots`: how many seeds are made at once, and in which order. `image_store`
//! reads and writes images.

mod background_build;
mod boot_image;
mod engine_step;
mod function;
mod function_memory;
mod function_step;
mod graph;
mod image_store;
mod language_engine;
mod own_log;
mod seed_build;
mod seed_step;
mod slots;
mod spec;
#[cfg(feature = "trial")]
mod test_step;
mod tree;

pub use self::background_build::register_existing;
pub use self::function::{BusyGuard, ForkOrigin, FunctionVersion, WeakFunctionVersion};
pub use self::graph::SeedHold;
#[cfg(feature = "trial")]
pub use self::graph::{SeedPurpose, Seeds};
pub use self::language_engine::LanguageEngine;
#[cfg(feature = "trial")]
pub use self::seed_build::{SeedBuild, SeedBuildContext};
#[cfg(feature = "trial")]
pub use self::seed_step::SeedStep;
#[cfg(feature = "trial")]
pub use self::slots::SeedPermit;
pub use self::slots::SeedSlots;
pub use self::spec::{
    EarlierBuild, FreezePolicy, FreezeReport, FunctionFiles, FunctionSpec, Script, ScriptFiles,
    ScriptSource, WarmUp,
};
#[cfg(feature = "trial")]
pub use self::test_step::{TestGuest, TestStep};
pub use self::tree::SeedTree;
