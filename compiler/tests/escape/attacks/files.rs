//! Attacks on files, and attacks that execute them.

use std::{ffi::c_long, ptr};

use faasw_abi::memory_map::CODE_MAX;
use faasw_compiler::protocol::contract::{INPUT_FD, OUTPUT_FD, REPORT_FD};
use libc::{
    EFBIG, ENOENT, ENOEXEC, ENOTTY, EPERM, ETXTBSY, MAP_PRIVATE, MAP_SHARED, PROT_EXEC, PROT_READ,
};

use super::{READ_WRITE, map};
use crate::escape::attack::{Attack, call, filter_only, forbidden, refused};

pub const FILES: [Attack; 24] = [
    forbidden("read-a-file-by-the-old-call", &[ENOENT], |_| {
        call!(SYS_open, c"/etc/passwd".as_ptr(), 0)
    }),
    forbidden("read-a-file-by-the-new-call", &[ENOENT], |_| {
        let how = [0_u64; 3];
        let path = c"/etc/passwd".as_ptr();
        call!(
            SYS_openat2,
            libc::AT_FDCWD,
            path,
            how.as_ptr(),
            size_of_val(&how)
        )
    }),
    forbidden("ask-for-a-file", &[ENOENT], |_| {
        let mut status = [0_u64; 32];
        let path = c"/etc/passwd".as_ptr();
        call!(SYS_statx, INPUT_FD, path, 0, 0xfff, status.as_mut_ptr())
    }),
    forbidden("look-for-a-file", &[ENOENT], |_| {
        call!(SYS_access, c"/etc/passwd".as_ptr(), 0)
    }),
    // The upload is not a program, and some kernels execute no file that is open for writing.
    forbidden("execute-the-upload", &[ENOEXEC, ETXTBSY], |_| {
        execute(INPUT_FD)
    }),
    // There is no shell in the jail.
    forbidden("execute-the-artifact", &[ENOENT, ETXTBSY], |_| {
        let script = c"#!/bin/sh\n";
        match call!(SYS_pwrite64, OUTPUT_FD, script.as_ptr(), 10, 0) {
            10 => execute(OUTPUT_FD),
            refused => refused,
        }
    }),
    forbidden("write-the-upload", &[EPERM], |_| {
        call!(SYS_pwrite64, INPUT_FD, c"x".as_ptr(), 1, 0)
    }),
    forbidden("write-the-upload-in-place", &[EPERM], |_| {
        call!(SYS_write, INPUT_FD, c"x".as_ptr(), 1)
    }),
    forbidden("cut-the-upload", &[EPERM], |_| {
        call!(SYS_ftruncate, INPUT_FD, 0)
    }),
    forbidden("grow-the-upload", &[EPERM], |_| {
        call!(SYS_ftruncate, INPUT_FD, 4096)
    }),
    forbidden("punch-the-upload", &[EPERM], |_| {
        call!(SYS_fallocate, INPUT_FD, 3, 0, 4096)
    }),
    forbidden("unseal-the-upload", &[EPERM], |_| {
        call!(SYS_fcntl, INPUT_FD, libc::F_ADD_SEALS, 0x10)
    }),
    forbidden("map-the-upload-to-write", &[EPERM], |_| {
        map(READ_WRITE, MAP_SHARED, INPUT_FD)
    }),
    filter_only("map-the-upload", |_| map(PROT_READ, MAP_PRIVATE, INPUT_FD)),
    filter_only("map-the-upload-to-run", |_| {
        map(PROT_READ | PROT_EXEC, MAP_PRIVATE, INPUT_FD)
    }),
    // With such a mapping, the node could not seal the artifact.
    filter_only("map-the-artifact-to-write", |_| {
        map(READ_WRITE, MAP_SHARED, OUTPUT_FD)
    }),
    filter_only("seal-the-artifact", |_| {
        call!(SYS_fcntl, OUTPUT_FD, libc::F_ADD_SEALS, libc::F_SEAL_SEAL)
    }),
    filter_only("read-the-artifact", |_| {
        let mut byte = 0_u8;
        call!(SYS_pread64, OUTPUT_FD, &raw mut byte, 1, 0)
    }),
    refused("write-beyond-an-artifact", &[EFBIG], |_| {
        call!(SYS_pwrite64, OUTPUT_FD, c"x".as_ptr(), 1, CODE_MAX)
    }),
    forbidden("grow-the-artifact", &[EFBIG], |_| {
        call!(SYS_ftruncate, OUTPUT_FD, CODE_MAX + 1)
    }),
    forbidden("grow-the-artifact-behind", &[EFBIG], |_| {
        call!(SYS_fallocate, OUTPUT_FD, 0, CODE_MAX, 4096)
    }),
    forbidden("write-beyond-a-report", &[EFBIG], |_| {
        match call!(SYS_lseek, REPORT_FD, CODE_MAX, libc::SEEK_SET) {
            0.. => call!(SYS_write, REPORT_FD, c"x".as_ptr(), 1),
            refused => refused,
        }
    }),
    forbidden("control-a-file", &[ENOTTY], |_| {
        let mut terminal = [0_u8; 64];
        call!(SYS_ioctl, OUTPUT_FD, libc::TCGETS, terminal.as_mut_ptr())
    }),
    forbidden("mount-what-shows-processes", &[EPERM], |_| {
        let kind = c"proc".as_ptr();
        call!(SYS_mount, kind, c"/".as_ptr(), kind, 0, 0)
    }),
];

fn execute(file: i32) -> c_long {
    let arguments = [ptr::null::<u8>(); 2];
    call!(
        SYS_execveat,
        file,
        c"".as_ptr(),
        arguments.as_ptr(),
        arguments.as_ptr(),
        libc::AT_EMPTY_PATH
    )
}
