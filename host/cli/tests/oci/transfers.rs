//! Artifacts that are pushed, pulled and deployed.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    thread,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{
    program::{Desk, module, read, reference},
    registry::{PASSWORD, Registry, USER},
};

pub async fn pushed_artifacts_are_pulled_and_deployed() {
    let (desk, registry) = (Desk::new().await, Registry::open());
    let file = desk.write("hello.wasm", module("one"));
    let tag = reference(&registry, "hello:v1");
    let pushed = desk.done(&[
        "push",
        &file,
        &tag,
        "-e",
        "GREETING=hi there",
        "--memory",
        "64",
        "--args",
        "--x",
    ]);
    let digest = pushed.trim_end();
    assert!(
        digest.starts_with(&reference(&registry, "hello@sha256:")),
        "{digest}"
    );

    let told = desk.done(&["pull", &tag, "-o", "out.wasm"]);
    assert_eq!(
        (told.trim_end(), read(&desk.path("out.wasm"))),
        (digest, module("one"))
    );
    fs::remove_file(desk.path("hello.wasm")).unwrap();
    desk.done(&["pull", &format!("oci://{digest}")]);
    assert_eq!(read(&desk.path("hello.wasm")), module("one"));
    let mode = fs::metadata(desk.path("hello.wasm"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o600, 0o600);

    let deployed = desk.done(&["deploy", &format!("oci://{tag}")]);
    assert!(deployed.starts_with("hello: version 1, "), "{deployed}");
    let function = desk.inspected("hello");
    assert_eq!(function["options"]["source"], format!("oci://{digest}"));
    assert_eq!(
        (&function["memory"], &function["environment"][0]),
        (&(64 << 20).into(), &"GREETING".into())
    );
    assert_eq!(function["options"]["arguments"][0], "--x");
    let text = desk.done(&["inspect", "hello"]);
    assert!(
        text.contains(&format!("from         oci://{digest}")),
        "{text}"
    );

    // The tag is moved, and the deployed version stays the same.
    desk.write("hello.wasm", module("two"));
    let second = desk.done(&["push", &file, &tag, "--json"]);
    let second: serde_json::Value = serde_json::from_str(&second).unwrap();
    assert_ne!(second["reference"], digest);
    assert_eq!(
        desk.inspected("hello")["options"]["source"],
        format!("oci://{digest}")
    );
    let old = desk.done(&[
        "deploy",
        &format!("oci://{digest}"),
        "--name",
        "old",
        "--json",
    ]);
    let old: serde_json::Value = serde_json::from_str(&old).unwrap();
    assert_eq!(
        old["function"]["options"]["source"],
        format!("oci://{digest}")
    );
    desk.done(&["deploy", &format!("oci://{tag}")]);
    assert_eq!(desk.inspected("hello")["version"], 2);
    // A file has no source.
    desk.done(&["deploy", &file, "--name", "here"]);
    assert!(desk.inspected("here")["options"].get("source").is_none());
}

pub async fn pushing_is_deterministic() {
    let (desk, registry) = (Desk::new().await, Registry::open());
    let file = desk.write("a.wasm", module("one"));
    desk.write("site/index.html", "hello");
    let push = |to: &str| {
        let pushed = desk.done(&[
            "push",
            &file,
            &reference(&registry, to),
            "--files",
            "site:/www",
            "-e",
            "A=b",
        ]);
        pushed.trim_end().rsplit('@').next().unwrap().to_owned()
    };
    let first = push("a:v1");
    fs::remove_dir_all(desk.path("site")).unwrap();
    desk.write("site/index.html", "hello");
    assert_eq!([push("a:v1"), push("b:v2")], [first.clone(), first]);
}

pub async fn a_private_registry_needs_its_authority_and_a_login() {
    let (desk, registry) = (Desk::new().await, Registry::closed());
    let file = desk.write("a.wasm", module("one"));
    let (tag, ca) = (reference(&registry, "a:v1"), registry.authority());
    let other = Registry::closed();
    let told = desk.refused(&["push", &file, &tag, "--ca", &other.authority()]);
    assert!(
        told.contains("certificate") && told.contains("--ca FILE"),
        "{told}"
    );
    // Without TLS, the registry's own error is shown.
    let told = desk.refused(&["push", &file, &tag]);
    assert!(told.contains("400"), "{told}");
    let told = desk.refused(&["push", &file, &tag, "--ca", &ca]);
    assert!(
        told.contains(&format!("docker login {}", registry.name())),
        "{told}"
    );
    let auth = |password: &str| STANDARD.encode(format!("{USER}:{password}"));
    let log_in = |password: &str| {
        let entry = format!(
            r#"{{"auths": {{"{}": {{"auth": "{}"}}}}}}"#,
            registry.name(),
            auth(password)
        );
        desk.write(".docker/config.json", entry);
    };
    log_in("wrong");
    let told = desk.refused(&["push", &file, &tag, "--ca", &ca]);
    assert!(told.contains("other than the one"), "{told}");
    log_in(PASSWORD);
    desk.done(&["push", &file, &tag, "--ca", &ca]);
    desk.done(&["pull", &tag, "--ca", &ca, "-o", "out.wasm"]);
    assert_eq!(read(&desk.path("out.wasm")), module("one"));
    desk.done(&["deploy", &format!("oci://{tag}"), "--ca", &ca]);
    // The log-in appears in no output.
    for word in [auth(PASSWORD).as_str(), PASSWORD] {
        let told = desk.faasw(&["pull", &tag, "--ca", &ca, "-o", "out.wasm"]);
        let told = format!("{told:?}{:?}", desk.done(&["inspect", "a"]));
        assert!(!told.contains(word), "{told}");
    }
}

pub async fn logins_come_from_files_and_helpers() {
    let (desk, registry) = (Desk::new().await, Registry::closed());
    let file = desk.write("a.wasm", module("one"));
    let (tag, ca) = (reference(&registry, "a:v1"), registry.authority());
    let push = |variable: &str, value: &str| {
        let mut command = desk.command(env!("CARGO_BIN_EXE_faasw"));
        command
            .args(["push", &file, &tag, "--ca", &ca])
            .env(variable, value);
        command.output().unwrap()
    };
    let auth = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let name = registry.name();
    // The file has a log-in for the repository, and another one for the registry.
    let podman = desk.write(
        "auth.json",
        format!(
            r#"{{"auths": {{"{name}/team": {{"auth": "{auth}"}}, "{name}": {{"auth": "eDp5"}}}}}}"#
        ),
    );
    let pushed = push("REGISTRY_AUTH_FILE", &podman);
    assert!(pushed.status.success(), "{pushed:?}");
    desk.write(
        "run/containers/auth.json",
        format!(r#"{{"auths": {{"{name}": {{"auth": "{auth}"}}}}}}"#),
    );
    let pushed = push("XDG_RUNTIME_DIR", desk.path("run").to_str().unwrap());
    assert!(pushed.status.success(), "{pushed:?}");
    // The log-in comes from a credential helper for this registry.
    let helper = desk.write(
        "bin/docker-credential-test",
        format!(
            "#!/bin/sh\nread -r server; test \"$1 $server\" = 'get {name}' || exit 1\n\
             printf '{{\"Username\": \"{USER}\", \"Secret\": \"{PASSWORD}\"}}'\n"
        ),
    );
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    desk.write(
        "docker/config.json",
        format!(r#"{{"credHelpers": {{"{name}": "test"}}}}"#),
    );
    let mut command = desk.command(env!("CARGO_BIN_EXE_faasw"));
    let path = format!(
        "{}:{}",
        desk.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    command
        .args(["push", &file, &tag, "--ca", &ca])
        .env("PATH", path)
        .env("DOCKER_CONFIG", desk.path("docker"));
    let pushed = command.output().unwrap();
    assert!(pushed.status.success(), "{pushed:?}");
    // A missing helper is an error, and does not mean an anonymous request.
    let failed = push("DOCKER_CONFIG", desk.path("docker").to_str().unwrap());
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
}

pub async fn files_are_pushed_with_a_module() {
    let (desk, registry) = (Desk::new().await, Registry::open());
    let file = desk.write("a.wasm", module("one"));
    desk.write("site/index.html", "hello");
    desk.write("site/deep/er/data", vec![7; 3_000_000]);
    std::os::unix::fs::symlink("index.html", desk.path("site/link")).unwrap();
    let tag = reference(&registry, "a:v1");
    desk.done(&["push", &file, &tag, "--files", "site:/www"]);
    let deployed = |name: &str, words: &[&str]| {
        let from = format!("oci://{tag}");
        desk.done(&[&["deploy", &from, "--name", name], words].concat());
        desk.inspected(name)["files"].clone()
    };
    let files = deployed("a", &[]);
    assert_eq!(
        (
            files["at"].as_str(),
            files["entries"].as_u64(),
            files["bytes"].as_u64()
        ),
        (Some("/www"), Some(5), Some(3_000_005))
    );
    desk.done(&["deploy", &file, "--name", "here", "--files", "site:/www"]);
    assert_eq!(desk.inspected("here")["files"], files);
    desk.write("other/file", "x");
    let files = deployed("b", &["--files", "other"]);
    assert_eq!(
        (files["at"].as_str(), files["entries"].as_u64()),
        (Some("/"), Some(1))
    );
    let pulled = desk.faasw(&["pull", &tag, "-o", "out.wasm"]);
    assert!(
        String::from_utf8_lossy(&pulled.stderr).contains("has files"),
        "{pulled:?}"
    );
}

pub async fn errors_are_one_line() {
    let (desk, registry) = (Desk::new().await, Registry::open());
    let file = desk.write("a.wasm", module("one"));
    let script = desk.write("a.js", "x");
    let tag = reference(&registry, "a:v1");
    let told = desk.refused(&["push", &script, &tag]);
    assert!(told.contains("not WebAssembly"), "{told}");
    for words in [
        &["pull", &tag, "-o", "out.wasm"][..],
        &["deploy", &format!("oci://{tag}")],
    ] {
        let told = desk.refused(words);
        assert!(told.contains(&format!("there is no {tag}")), "{told}");
    }
    assert!(!desk.path("out.wasm").exists());
    desk.done(&["push", &file, &tag]);
    let told = desk.refused(&["pull", &tag, "-o", "data"]);
    assert!(told.contains("directory"), "{told}");
    let told = desk.refused(&["pull", &tag, "-o", "nowhere/out.wasm"]);
    assert!(told.contains("cannot be written"), "{told}");
    let digest = format!("{}@sha256:{}", reference(&registry, "a"), "0".repeat(64));
    for (words, code) in [
        (&["push", &file, &digest][..], 2),
        (&["deploy", &file, "--watch"], 2),
        (&["deploy", &file, "--plain-http"], 2),
        (&["deploy", "oci://hello"], 2),
        (&["deploy", &format!("oci://{digest}"), "--watch"], 2),
        (&["pull", &digest], 1),
    ] {
        let output = desk.faasw(words);
        assert_eq!(output.status.code(), Some(code), "{words:?} {output:?}");
    }
    let gone = Registry::open();
    let tag = reference(&gone, "a:v1");
    drop(gone);
    let told = desk.refused(&["pull", &tag]);
    assert!(told.contains("cannot be connected to"), "{told}");
    // Without a node, nothing is fetched.
    let mut command = desk.command(env!("CARGO_BIN_EXE_faasw"));
    command.args(["deploy", &format!("oci://{tag}"), "--data-dir", "nowhere"]);
    assert_eq!(command.output().unwrap().status.code(), Some(3));
}

pub async fn loopback_registries_bypass_the_proxy() {
    let (desk, registry) = (Desk::new().await, Registry::open());
    let file = desk.write("a.wasm", module("one"));
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap();
    let push = |to: &str| {
        let mut command = desk.command(env!("CARGO_BIN_EXE_faasw"));
        for variable in ["http_proxy", "https_proxy", "all_proxy"] {
            command.env(variable, format!("http://{address}"));
        }
        command.env_remove("no_proxy").env_remove("NO_PROXY");
        command
            .args(["push", &file, to, "--plain-http"])
            .output()
            .unwrap()
    };
    let output = push(&reference(&registry, "a:v1"));
    assert!(output.status.success(), "{output:?}");
    // Requests to other hosts use the proxy, as with other clients.
    let asked = thread::spawn(move || {
        let mut line = [0; 21];
        proxy.accept().unwrap().0.read_exact(&mut line).unwrap();
        String::from_utf8(line.to_vec()).unwrap()
    });
    assert_eq!(push("reg.test/a:v1").status.code(), Some(1));
    assert_eq!(asked.join().unwrap(), "HEAD http://reg.test/");
}

pub async fn a_killed_command_leaves_nothing() {
    let desk = Desk::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tag = format!("{}/a:v1", listener.local_addr().unwrap());
    let temporary = desk.path("tmp");
    fs::create_dir(&temporary).unwrap();
    desk.write("a.wasm", "what was there");
    let mut command = desk.command(env!("CARGO_BIN_EXE_faasw"));
    let mut child = command
        .args(["pull", &tag])
        .env("TMPDIR", &temporary)
        .spawn()
        .unwrap();
    // Sends the complete manifest, and half of the module.
    let digest = "b".repeat(64);
    let manifest = format!(
        r#"{{"schemaVersion": 2, "layers": [
            {{"mediaType": "application/wasm", "digest": "sha256:{digest}", "size": 2000000}}]}}"#
    );
    let answer = |length: usize, body: &[u8]| {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        stream
    };
    drop(answer(manifest.len(), manifest.as_bytes()));
    let going_on = answer(2_000_000, &[b'x'; 1_000_000]);
    child.kill().unwrap();
    child.wait().unwrap();
    drop(going_on);
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    assert_eq!(read(&desk.path("a.wasm")), b"what was there");
    let all = fs::read_dir(desk.folder.path()).unwrap();
    let mut names: Vec<_> = all
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["a.wasm", "data", "tmp"]);
}
