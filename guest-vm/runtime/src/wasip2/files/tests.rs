//! `wasi:filesystem` and its streams, called as the generated bindings call them, because C
//! libraries use both in their own ways.

use alloc::vec;

use faasw_abi::files::upload::{Files as Upload, pack};
use faasw_abi::wire::{FunctionKind, RequestHead, SeedConfig};

use super::types::{Host as _, HostDescriptor, OpenFlags};
use super::*;
use crate::files::Files;
use crate::state::Stdio;
use crate::testing::MemoryPlatform;
use crate::wasip2::bindings::wasi::io::streams::{HostInputStream, HostOutputStream};
use crate::wasip2::streams::StreamFailure;

type Function = State<MemoryPlatform>;

/// Returns a function with one file, and the folder of that file.
fn function() -> (Function, Resource<Descriptor>) {
    let mut upload = Upload::default();
    upload.add(Kind::File, "log", b"one ");
    let bundle = pack(&upload.into_bytes()).unwrap();
    let files = Files::new(bundle.leak(), "/".into()).unwrap();
    let config = SeedConfig {
        kind: FunctionKind::CliComponent,
        tells_state: false,
        has_entry: false,
        memory_limit: 1 << 20,
        arguments: Vec::new(),
        environment: Vec::new(),
        configuration: Vec::new(),
        secrets: Vec::new(),
        stores: Vec::new(),
        files: None,
    };
    let mut function = State::new(config, Stdio::Log, Some(files), MemoryPlatform::new(0));
    let mut folders = preopens::Host::get_directories(&mut function).unwrap();
    let (folder, mount) = folders.pop().unwrap();
    assert_eq!(mount, "/");
    (function, folder)
}

fn again<T: 'static>(resource: &Resource<T>) -> Resource<T> {
    Resource::new_own(resource.rep())
}

fn open(function: &mut Function, folder: &Resource<Descriptor>) -> Resource<Descriptor> {
    let flags = DescriptorFlags::READ | DescriptorFlags::WRITE;
    let opened = function.open_at(
        again(folder),
        PathFlags::empty(),
        "log".into(),
        OpenFlags::empty(),
        flags,
    );
    opened.ok().unwrap()
}

/// Returns the bytes from a position to the end, by a stream of its own.
fn read_from(function: &mut Function, file: &Resource<Descriptor>, at: u64) -> Vec<u8> {
    let stream = HostDescriptor::read_via_stream(function, again(file), at)
        .ok()
        .unwrap();
    let mut all = Vec::new();
    while let Ok(bytes) = function.blocking_read(again(&stream), 1000) {
        assert!(!bytes.is_empty());
        all.extend_from_slice(&bytes);
    }
    HostInputStream::drop(function, stream).unwrap();
    all
}

#[test]
fn appended_data_is_read_by_the_same_descriptor_at_any_offset() {
    let (mut function, folder) = function();
    let file = open(&mut function, &folder);
    let before = function.read_via_stream(again(&file), 0).ok().unwrap();
    let appending = function.append_via_stream(again(&file)).ok().unwrap();
    for text in [&b"two "[..], b"three"] {
        let written = function.blocking_write_and_flush(again(&appending), text.to_vec());
        written.ok().unwrap();
    }
    // A position in the file belongs to a stream, not to a descriptor: appending by one does not
    // move another.
    for (at, expected) in [(0, &b"one two three"[..]), (4, b"two three"), (13, b"")] {
        assert_eq!(read_from(&mut function, &file, at), expected);
    }
    let read = HostInputStream::read(&mut function, again(&before), 100)
        .ok()
        .unwrap();
    assert_eq!(read, b"one two three");
    let (read, is_end) = HostDescriptor::read(&mut function, again(&file), 100, 4)
        .ok()
        .unwrap();
    assert_eq!((&read[..], is_end), (&b"two three"[..], true));
}

#[test]
fn a_stream_error_of_a_full_overlay_is_insufficient_space() {
    let (mut function, folder) = function();
    let file = open(&mut function, &folder);
    let stream = function.write_via_stream(again(&file), 0).ok().unwrap();
    let failed = loop {
        let written = HostOutputStream::write(&mut function, again(&stream), vec![7; 64 << 10]);
        if let Err(failed) = written {
            break failed;
        }
    };
    let StreamFailure::Failed(error) = failed else {
        panic!("no error");
    };
    let error = function.table.push(error).unwrap();
    let code = function.filesystem_error_code(error).unwrap();
    assert_eq!(code, Some(ErrorCode::InsufficientSpace));
    // The descriptor reports the same error.
    let failed = HostDescriptor::write(&mut function, again(&file), vec![7; 1], 1 << 30);
    let is_it =
        |failed: &FileFailure| matches!(failed, FileFailure::Code(ErrorCode::InsufficientSpace));
    assert!(failed.as_ref().is_err_and(is_it));
}

#[test]
fn a_command_that_opens_the_file_that_it_is_frozen_at_finds_its_request_there_by_any_descriptor() {
    let (mut function, folder) = function();
    let files = function.files.as_mut().unwrap();
    files.freeze_at("/log").unwrap();
    // The state of a command that has no request yet.
    function.runs_to_entry = true;
    function.platform.begin_synthetic(Vec::new());
    function.platform.inner.request_head = RequestHead {
        method: b"GET".to_vec(),
        path_and_query: b"/p?q".to_vec(),
        ..RequestHead::default()
    };
    for _ in 0..2 {
        let file = open(&mut function, &folder);
        let found = read_from(&mut function, &file, 0);
        let variables: Vec<_> = found.split(|byte| *byte == 0).collect();
        for variable in ["REQUEST_METHOD=GET", "PATH_INFO=/p", "QUERY_STRING=q"] {
            assert!(variables.contains(&variable.as_bytes()), "{variable}");
        }
        assert_eq!(function.platform.inner.frozen.len(), 1);
    }
    assert!(!function.may_enter && !function.runs_to_entry);
}
