//! `oras` in both directions, and images from other tools.

use std::{fs, process::Output};

use flate2::{Compression, write::GzEncoder};

use crate::{
    program::{Desk, module, read, reference},
    registry::{self, Registry},
};

fn oras(desk: &Desk, words: &[&str]) -> Output {
    let mut command = desk.command(registry::oras().unwrap());
    let output = command.args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    output
}

pub async fn oras_pulls_pushed_artifacts() {
    let (desk, registry) = (Desk::new().await, Registry::open());
    let file = desk.write("hello.wasm", module("one"));
    desk.write("site/index.html", "hello");
    let tag = reference(&registry, "hello:v1");
    let pushed = desk.done(&["push", &file, &tag, "--files", "site", "-e", "A=b"]);
    fs::create_dir(desk.path("out")).unwrap();
    oras(
        &desk,
        &["pull", "--plain-http", pushed.trim_end(), "-o", "out"],
    );
    assert_eq!(read(&desk.path("out/hello.wasm")), module("one"));
    let manifest = oras(&desk, &["manifest", "fetch", "--plain-http", &tag]).stdout;
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(
        manifest["config"]["mediaType"],
        "application/vnd.wasm.config.v0+json"
    );
    assert_eq!(manifest["layers"][0]["mediaType"], "application/wasm");
    assert_eq!(manifest["annotations"]["dev.faasw.env"], r#"["A=b"]"#);
    let config = oras(&desk, &["manifest", "fetch-config", "--plain-http", &tag]).stdout;
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(config["config"]["Entrypoint"][0], "/hello.wasm");
    assert_eq!(
        (&config["os"], &config["layerDigests"][0]),
        (&"wasip1".into(), &manifest["layers"][0]["digest"])
    );
}

pub async fn artifacts_pushed_by_oras_are_pulled_and_deployed() {
    let (desk, registry) = (Desk::new().await, Registry::open());
    desk.write("hello.wasm", module("one"));
    desk.write("config.json", r#"{"architecture": "wasm", "os": "wasip1"}"#);
    let tag = reference(&registry, "hello:v1");
    for more in [
        &[][..],
        &[
            "--config",
            "config.json:application/vnd.wasm.config.v0+json",
        ],
        &["--artifact-type", "application/vnd.wasm.config.v0+json"],
        &["--annotation", "dev.faasw.memory=67108864"],
    ] {
        let words = ["push", "--plain-http", &tag, "hello.wasm:application/wasm"];
        oras(&desk, &[&words, more].concat());
        desk.done(&["pull", &tag, "-o", "out.wasm"]);
        assert_eq!(read(&desk.path("out.wasm")), module("one"));
        desk.done(&["deploy", &format!("oci://{tag}")]);
    }
    assert_eq!(desk.inspected("hello")["memory"], 64 << 20);
}

/// Returns a layer like that of `docker build` with `FROM scratch` and `COPY`.
fn layer(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive
            .append_data(&mut header, path, &content[..])
            .unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

fn push_image(desk: &Desk, tag: &str, files: &[(&str, Vec<u8>)]) {
    desk.write("layer.tgz", layer(files));
    desk.write(
        "config.json",
        r#"{"architecture": "wasm", "os": "wasi", "rootfs": {"type": "layers", "diff_ids": []}}"#,
    );
    let config = "config.json:application/vnd.oci.image.config.v1+json";
    let layer = "layer.tgz:application/vnd.oci.image.layer.v1.tar+gzip";
    oras(
        desk,
        &["push", "--plain-http", tag, "--config", config, layer],
    );
}

pub async fn an_image_from_scratch_is_deployed() {
    let (desk, registry) = (Desk::new().await, Registry::open());
    let tag = reference(&registry, "image:v1");
    push_image(
        &desk,
        &tag,
        &[("etc/x", b"x".to_vec()), ("hello.wasm", module("one"))],
    );
    desk.done(&["pull", &tag, "-o", "out.wasm"]);
    assert_eq!(read(&desk.path("out.wasm")), module("one"));
    desk.done(&["deploy", &format!("oci://{tag}")]);
    push_image(
        &desk,
        &tag,
        &[("a.wasm", module("one")), ("b.wasm", module("two"))],
    );
    let told = desk.refused(&["pull", &tag, "-o", "none.wasm"]);
    assert!(
        told.contains("several modules") && !desk.path("none.wasm").exists(),
        "{told}"
    );
}

pub async fn the_wasi_entry_of_an_index_is_deployed() {
    let (desk, registry) = (Desk::new().await, Registry::open());
    let tag = |name: &str| reference(&registry, &format!("image:{name}"));
    desk.write("hello.wasm", module("native"));
    for (name, platform) in [("linux", "linux/amd64"), ("wasi", "wasi/wasm")] {
        desk.write("hello.wasm", module(name));
        let words = [
            "push",
            "--plain-http",
            "--artifact-platform",
            platform,
            "--artifact-type",
            "application/x",
            &tag(name),
        ];
        oras(
            &desk,
            &[&words[..], &["hello.wasm:application/wasm"]].concat(),
        );
    }
    oras(
        &desk,
        &[
            "manifest",
            "index",
            "create",
            "--plain-http",
            &tag("both"),
            "linux",
            "wasi",
        ],
    );
    let told = desk.done(&["pull", &tag("both"), "-o", "out.wasm"]);
    assert_eq!(read(&desk.path("out.wasm")), module("wasi"));
    let deployed = desk.done(&["deploy", &format!("oci://{}", tag("both")), "--json"]);
    let deployed: serde_json::Value = serde_json::from_str(&deployed).unwrap();
    assert_eq!(
        deployed["function"]["options"]["source"],
        format!("oci://{}", told.trim_end())
    );
}

pub async fn artifacts_of_other_types_are_rejected() {
    let (desk, registry) = (Desk::new().await, Registry::open());
    let tag = reference(&registry, "other:v1");
    desk.write("a", "text");
    desk.write("b.wasm", module("one"));
    for (layers, why) in [
        (&["a:text/plain"][..], "a layer of text/plain"),
        (
            &["b.wasm:application/wasm", "a:text/plain"],
            "a layer of text/plain",
        ),
        (&["a:application/wasm"], "does not begin as WebAssembly"),
        (&["a:application/vnd.oci.image.layer.v1.tar"], "archive"),
        (
            &["--annotation", "dev.faasw.new=x", "b.wasm:application/wasm"],
            "",
        ),
    ] {
        oras(&desk, &[&["push", "--plain-http", &tag], layers].concat());
        let told = desk.refused(&["deploy", &format!("oci://{tag}")]);
        assert!(told.contains(why), "{told}");
    }
}

/// Returns a layer with a path, and a link target if given, that no archiver would write.
fn files_layer(path: &str, target: Option<&str>) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    let mut header = tar::Header::new_ustar();
    header.as_ustar_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_size(0);
    header.set_mode(0o644);
    if let Some(target) = target {
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_link_name_literal(target).unwrap();
    }
    header.set_cksum();
    archive.append(&header, &[][..]).unwrap();
    archive.into_inner().unwrap().finish().unwrap()
}

pub async fn archives_with_paths_outside_are_rejected() {
    let (desk, registry) = (Desk::new().await, Registry::open());
    let tag = reference(&registry, "files:v1");
    desk.write("a.wasm", module("one"));
    let push = |path: &str, target: Option<&str>| {
        desk.write("files.tgz", files_layer(path, target));
        let files = "files.tgz:application/vnd.faasw.files.v1.tar+gzip";
        oras(
            &desk,
            &[
                "push",
                "--plain-http",
                &tag,
                "a.wasm:application/wasm",
                files,
            ],
        );
    };
    for (path, target) in [
        ("../a", None),
        ("/etc/passwd", None),
        ("a/../../b", None),
        ("a//b", None),
        ("link", Some("/etc/passwd")),
        ("link", Some("../../etc/passwd")),
    ] {
        push(path, target);
        let told = desk.refused(&["deploy", &format!("oci://{tag}")]);
        assert!(told.contains("was not deployed"), "{told}");
    }
    push("a/b", Some("../c"));
    desk.done(&["deploy", &format!("oci://{tag}")]);
}
