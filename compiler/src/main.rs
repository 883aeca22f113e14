//! `faasw-compiler`, the compile helper as a process: [`faasw_compiler::helper`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

use faasw_compiler::{exhaustion::ExitingAllocator, helper, jail, perform};

#[global_allocator]
static ALLOCATOR: ExitingAllocator = ExitingAllocator;

fn main() -> ExitCode {
    helper::run(jail::filter(), perform)
}
