//! The targets, each with the rules to which it holds its reader.

pub mod artifact;
pub mod compile_report;
pub mod egress;
pub mod export;
pub mod files;
pub mod fri;
pub mod image;
pub mod log;
pub mod mailbox;
pub mod response;
pub mod sandbox_words;
pub mod script;
pub mod state;
pub mod store;
pub mod wire;
pub mod working_set;

use crate::Target;

/// All targets.
pub const ALL: [Target; 16] = [
    artifact::TARGET,
    compile_report::TARGET,
    egress::TARGET,
    export::TARGET,
    files::TARGET,
    fri::TARGET,
    image::TARGET,
    log::TARGET,
    mailbox::TARGET,
    response::TARGET,
    script::TARGET,
    sandbox_words::TARGET,
    state::TARGET,
    store::TARGET,
    wire::TARGET,
    working_set::TARGET,
];
