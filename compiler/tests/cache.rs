//! The cache of a compilation is used by the next one, and changes only its duration. A cache from
//! elsewhere is untrusted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the helper process is for other tests")]
mod support;

use std::collections::BTreeMap;

use faasw_abi::isa::Isa;
use faasw_compiler::protocol::{Input, Task, Wizer};
use faasw_compiler::{Artifact, perform};
use support::{fixtures::fixture, random::seeded};

fn with(task: Task, upload: &[u8], earlier: Option<&[u8]>) -> Artifact {
    let input = Input {
        task,
        keeps_cache: earlier.is_some(),
        upload,
        beside: earlier.unwrap_or_default(),
    };
    perform(&input, Isa::V3).unwrap()
}

fn compiled(upload: &[u8], earlier: Option<&[u8]>) -> Artifact {
    with(Task::Compile, upload, earlier)
}

/// Decodes the entries of a cache.
fn entries(mut cache: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut entries = BTreeMap::new();
    while let [key, a, b, c, d, rest @ ..] = cache {
        let (key, rest) = rest.split_at((*key).into());
        let length = u32::from_le_bytes([*a, *b, *c, *d]).try_into().unwrap();
        let (value, rest) = rest.split_at(length);
        entries.insert(key.to_vec(), value.to_vec());
        cache = rest;
    }
    entries
}

/// Asserts that many keys are equal. Cranelift computes the keys of some functions differently each
/// time, usually one in fifteen, although the code is the same. These functions are compiled again,
/// and are not stored twice.
#[track_caller]
fn assert_like_keys(one: &[u8], other: &[u8]) {
    let (one, other) = (entries(one), entries(other));
    let shared = one.keys().filter(|key| other.contains_key(*key)).count();
    for all in [one.len(), other.len()] {
        assert!(shared <= all && shared * 4 >= all, "{shared} of {all}");
    }
}

/// Compares the code without printing it.
#[track_caller]
fn assert_same_code(one: &Artifact, other: &Artifact) {
    assert!(one.code == other.code);
}

fn written(entries: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<u8> {
    let entries = entries.iter().map(|(key, value)| {
        let length = u32::try_from(value.len()).unwrap().to_le_bytes();
        [&[key.len() as u8][..], &length, key, value].concat()
    });
    entries.collect::<Vec<_>>().concat()
}

/// A command of two functions; `told` changes the second one.
fn command(told: u32) -> Vec<u8> {
    format!(
        r#"(module
            (memory (export "memory") 1)
            (func $first (param i32) (result i32) (i32.mul (local.get 0) (i32.const 7)))
            (func (export "_start") (drop (call $first (i32.const {told})))))"#
    )
    .into_bytes()
}

#[test]
fn no_cache_is_kept_unless_requested() {
    let artifact = compiled(&command(1), None);
    assert!(artifact.cache.is_empty());
    assert_eq!(artifact.compiled.cache_bytes, 0);
}

#[test]
fn the_artifact_is_the_same_with_any_cache() {
    for (one, other) in [
        (fixture("http-probe.wasm"), fixture("init-draws.wasm")),
        (fixture("cgi-probe.wasm"), command(1)),
        (command(1), command(2)),
    ] {
        let plain = compiled(&one, None);
        let first = compiled(&one, Some(b""));
        assert_same_code(&first, &plain);
        assert_eq!(first.compiled.cache_bytes, first.cache.len() as u64);
        let again = compiled(&one, Some(&first.cache));
        assert_same_code(&again, &plain);
        assert_like_keys(&again.cache, &first.cache);
        let of_another = compiled(&other, Some(&first.cache));
        assert_same_code(&of_another, &compiled(&other, None));
        // Only the entries that this compilation needs.
        let fresh = compiled(&other, Some(b""));
        assert_like_keys(&of_another.cache, &fresh.cache);
    }
}

/// This is also why no function gets the cache of another function's helper.
#[test]
fn a_kept_cache_is_used() {
    // A key is not always the same, see `assert_like_keys`.
    let used = (0..50).any(|_| {
        let one = entries(&compiled(&command(1), Some(b"")).cache);
        let other = entries(&compiled(&command(2), Some(b"")).cache);
        let own = |key: &Vec<u8>| one.contains_key(key) && !other.contains_key(key);
        let value = other.iter().find(|(key, _)| !one.contains_key(*key));
        let mut poisoned = one.clone();
        for (key, kept) in &mut poisoned {
            if own(key) {
                kept.clone_from(value.unwrap().1);
            }
        }
        let mistaken = compiled(&command(1), Some(&written(&poisoned)));
        mistaken.code == compiled(&command(2), None).code
    });
    assert!(used);
}

#[test]
fn an_unreadable_cache_is_rebuilt() {
    let upload = fixture("cgi-probe.wasm");
    let plain = compiled(&upload, Some(b""));
    let kept = entries(&plain.cache);
    let cut: BTreeMap<_, _> = kept
        .iter()
        .map(|(key, value)| (key.clone(), value[..value.len() / 2].to_vec()))
        .collect();
    let empty = kept.keys().map(|key| (key.clone(), Vec::new())).collect();
    for bad in [cut, empty] {
        let artifact = compiled(&upload, Some(&written(&bad)));
        assert_same_code(&artifact, &plain);
        assert_like_keys(&artifact.cache, &plain.cache);
    }
}

/// With any content, the helper ends by itself. Its jail and its limits cover the rest.
#[test]
fn any_bytes_are_taken() {
    let upload = command(1);
    let kept = compiled(&upload, Some(b"")).cache;
    let mut random = seeded();
    for _ in 0..300 {
        let mut bytes = kept.clone();
        for _ in 0..random.usize(1..20) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes.truncate(random.usize(..=bytes.len()));
        let input = Input {
            task: Task::Compile,
            keeps_cache: true,
            upload: &upload,
            beside: &bytes,
        };
        // A panic of Cranelift concerns only this upload.
        let _ = std::panic::catch_unwind(|| perform(&input, Isa::V3));
    }
}

#[test]
fn a_module_that_wizer_has_instrumented_shares_most_with_the_upload() {
    let upload = br#"(module
        (memory (export "memory") 1)
        (func (export "wizer-initialize") (i32.store (i32.const 8) (i32.const 1)))
        (func $much (param i32) (result i32) (i32.rotl (local.get 0) (i32.const 7)))
        (func (export "_start") (drop (call $much (i32.const 3)))))"#;
    let instrumented = with(Task::CompileToInitialise, upload, Some(b""));
    assert_eq!(instrumented.compiled.wizer, Some(Wizer::Instrumented));
    let kept = entries(&instrumented.cache);
    let plain = compiled(upload, Some(&instrumented.cache));
    assert_same_code(&plain, &compiled(upload, None));
    let shared = entries(&plain.cache)
        .keys()
        .filter(|key| kept.contains_key(*key))
        .count();
    assert!(shared >= 3, "{shared} of {}", kept.len());
}
