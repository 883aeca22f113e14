//! `faasw-compiler`, the compile helper as a process: [`faasw_compiler::helper`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

use faasw_compiler::{cell, exhaustion::ExitingAllocator, helper, perform};

#[global_allocator]
static ALLOCATOR: ExitingAllocator = ExitingAllocator;

fn main() -> ExitCode {
    helper::run(cell::filter(), perform)
}
