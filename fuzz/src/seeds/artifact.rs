//! Answers of good registries, and valid artifacts.

use faasw_oci::artifact::{FileKind, FilesEntry, write_files};
use faasw_oci::fuzzing::unpacked;

use super::Seed;

/// Returns all seeds for artifacts.
pub fn all() -> Vec<Seed> {
    let digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let manifest = format!(
        r#"{{"schemaVersion":2,"config":{{"mediaType":"application/vnd.wasm.config.v0+json","digest":"{digest}","size":2}},"layers":[{{"mediaType":"application/wasm","digest":"{digest}","size":8}}],"annotations":{{"dev.faasw.memory":"65536"}}}}"#
    );
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"m","digest":"{digest}","size":8,"platform":{{"os":"wasip1","architecture":"wasm"}}}}]}}"#
    );
    let entry = |kind, path, content| FilesEntry {
        kind,
        path,
        content,
    };
    let layer = |entries: Vec<FilesEntry<'_>>| write_files(entries).unwrap_or_default();
    let image = layer(vec![entry(
        FileKind::File,
        "hello.wasm",
        b"\0asm\x01\0\0\0",
    )]);
    let files = layer(vec![
        entry(FileKind::Folder, "a", b""),
        entry(FileKind::File, "a/b", b"content"),
        entry(FileKind::Link, "c", b"a/b"),
    ]);
    [
        ("manifest", 0, manifest.as_bytes()),
        ("index", 0, index.as_bytes()),
        (
            "challenge",
            1,
            br#"Bearer realm="https://a.test/token",service="a",scope="b""#,
        ),
        ("token", 2, br#"{"token":"a.b.c","expires_in":300}"#),
        ("reference", 3, b"reg.test:5000/team/app:v1"),
        ("image", 4, &image),
        ("image-unpacked", 4, &unpacked(&image)),
        ("files", 5, &files),
        ("files-unpacked", 5, &unpacked(&files)),
    ]
    .map(|(name, how, rest)| ("artifact", name, [&[how][..], rest].concat()))
    .into()
}
