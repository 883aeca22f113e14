//! Preparation of scripts for the JavaScript engine: TypeScript, JSX and npm packages.
//!
//! [`prepare`] starts at an entry file and follows its imports. It strips types, transforms JSX,
//! resolves packages as bundlers for workers do, and returns the files that the engine loads:
//! reachable modules only, their source maps, and a table of what each import means. Modules stay
//! separate files under their authors' paths, so nothing is renamed or merged.
//!
//! The crate parses foreign code. A serving node never links it into its own work: the command line
//! runs it in a confined process (`host/cli/src/preparation`).

mod analysis;
mod error;
mod graph;
mod helpers;
mod paths;
mod production;
mod resolution;
mod source;
mod table;
mod visitor;

pub use error::PrepareError;
pub use graph::{Limits, Preparation, Prepared, prepare};
pub use table::TABLE;

/// Extensions of files that only run after a preparation.
pub const PREPARED_EXTENSIONS: [&str; 6] = ["ts", "tsx", "mts", "cts", "jsx", "cjs"];

/// Extensions of modules, prepared or not.
pub const MODULE_EXTENSIONS: [&str; 8] = ["ts", "tsx", "mts", "cts", "js", "mjs", "cjs", "jsx"];
