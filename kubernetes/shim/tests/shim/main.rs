//! The program as containerd and runc's shim call it, with test programs in place of containerd,
//! runc and runc's shim.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod containerd;
mod host;
mod sharing;

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use containerd::digest;
use host::{Host, specification};
use serde_json::{Value, json};

#[test]
fn runcs_shim_gets_this_program_as_its_runc() {
    let host = Host::new();
    let arguments = [
        "-namespace",
        "k8s.io",
        "-address",
        "unix:///run/c.sock",
        "-publish-binary",
        "/nowhere/containerd",
        "-id",
        "p",
        "delete",
    ];
    let output = host.run("containerd-shim-faasw-v1", &arguments);
    assert!(output.status.success(), "{output:?}");
    let called = host.called().unwrap();
    let mut lines = called.lines();
    let expected = format!(
        "{} {}",
        host.at("programs/containerd-shim-runc-v2").display(),
        arguments.join(" ")
    );
    assert_eq!(lines.next().unwrap(), expected);
    let environment = lines.next().unwrap();
    assert!(
        environment.starts_with(&format!("{}:", host.at("1/path").display())),
        "{environment}"
    );
    assert!(
        environment.ends_with(" /run/c.sock k8s.io"),
        "{environment}"
    );
    fs::remove_file(host.at("programs/containerd-shim-runc-v2")).unwrap();
    let output = host.run("containerd-shim-faasw-v1", &arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("there is no containerd-shim-runc-v2"),
        "{said}"
    );
}

#[test]
fn a_start_reports_missing_host_features() {
    let host = Host::new();
    fs::remove_file(host.at("1/root/bin/faasw")).unwrap();
    let arguments = [
        "-namespace",
        "k8s.io",
        "-address",
        "/run/c.sock",
        "-id",
        "p",
        "start",
    ];
    let output = host.run("containerd-shim-faasw-v1", &arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    // Which missing requirement is reported first depends on the host.
    assert!(
        !output.status.success() && said.contains("this host cannot run functions of faasw"),
        "{said}"
    );
    assert_eq!(host.called(), None);
}

#[test]
fn other_containers_reach_runc_unchanged() {
    let host = Host::new();
    let mut sandbox = specification("/pause");
    sandbox["annotations"]["io.kubernetes.cri.container-type"] = "sandbox".into();
    host.write_specification(&sandbox);
    // The record and the image of a sandbox container are not read.
    assert!(host.create().status.success());
    assert_eq!(host.read_specification(), sandbox);
    assert!(host.called().unwrap().contains("runc --root /r --log"));
    let ordinary = specification("/bin/sh");
    host.write_specification(&ordinary);
    host.artifact(b"layer", |manifest| {
        manifest["layers"][0]["mediaType"] = "application/vnd.oci.image.layer.v1.tar".into()
    });
    assert!(host.create().status.success());
    assert_eq!(host.read_specification(), ordinary);
    host.called().unwrap();
    for line in [
        &["--root", "/r", "kill", "c1", "9"][..],
        &["--version"],
        &["--root", "/r", "update", "--resources", "-", "c1"],
    ] {
        assert!(host.run("runc", line).status.success());
        assert!(host.called().unwrap().contains(&line.join(" ")));
    }
    for line in [&["--root", "/r", "restore", "c1"][..], &["conjure", "c1"]] {
        assert!(!host.run("runc", line).status.success());
        assert_eq!(host.called(), None);
    }
}

#[test]
fn systemd_creates_its_own_groups() {
    let host = Host::new();
    let mut sandbox = specification("/pause");
    sandbox["annotations"]["io.kubernetes.cri.container-type"] = "sandbox".into();
    sandbox["linux"]["cgroupsPath"] = "kubepods-pod1.slice:cri-containerd:c1".into();
    host.write_specification(&sandbox);
    assert!(host.create().status.success());
    assert!(
        host.called()
            .unwrap()
            .contains("runc --systemd-cgroup --root /r")
    );
}

#[test]
fn a_container_of_a_module_gets_a_node() {
    if !Path::new("/dev/kvm").exists() {
        eprintln!("SKIPPED (no /dev/kvm)");
        return;
    }
    let host = Host::new();
    host.write_specification(&specification("/hello.wasm"));
    host.artifact(b"\0asm module", |_| {});
    let output = host.create();
    assert!(output.status.success(), "{output:?}");
    assert!(host.called().unwrap().contains(" create --bundle "));
    let module = host.at("bundle/rootfs/.faasw-module.wasm");
    assert_eq!(fs::read(&module).unwrap(), b"\0asm module");
    assert_eq!(
        fs::metadata(&module).unwrap().permissions().mode() & 0o777,
        0o444
    );
    let specified = host.read_specification();
    assert_eq!(
        specified["process"]["args"],
        json!([
            "/bin/faasw",
            "pod",
            "/function.wasm",
            "--name=hello",
            "--args=x",
            "--memory=16",
            "--env-file=/function.env.json"
        ])
    );
    assert_eq!(
        specified["root"]["path"],
        host.at("1/root").canonicalize().unwrap().to_str().unwrap()
    );
    assert_eq!(specified["annotations"]["faasw.dev/node"], "1");
    assert!(!specified.to_string().contains("CAP_"));
    // Variables are readable for the node's user only, and on no command line.
    let variables = host.at("bundle/rootfs/.faasw-function.env.json");
    assert_eq!(fs::read(&variables).unwrap(), br#"{"A":"b"}"#);
    let found = fs::metadata(&variables).unwrap();
    assert_eq!(
        (found.permissions().mode() & 0o777, found.uid()),
        (0o400, host::user().0)
    );
    let mount = json!({ "destination": "/function.env.json", "type": "bind",
        "source": variables.canonicalize().unwrap(),
        "options": ["bind", "ro", "nosuid", "nodev", "noexec", "rprivate"] });
    assert!(specified["mounts"].as_array().unwrap().contains(&mount));
}

#[test]
fn files_of_an_artifact_are_mounted_for_the_function() {
    if !Path::new("/dev/kvm").exists() {
        eprintln!("SKIPPED (no /dev/kvm)");
        return;
    }
    let with_files = |host: &Host, kind: &str| {
        let files = json!({ "mediaType": kind, "digest": digest(b"archive"), "size": 7 });
        let config = json!({ "layerDigests": [digest(b"\0asm"), digest(b"archive")] }).to_string();
        host.containerd.add_blob(config.as_bytes());
        host.containerd.add_blob(b"archive");
        host.write_specification(&specification("/hello.wasm"));
        host.artifact(b"\0asm", |manifest| {
            manifest["layers"].as_array_mut().unwrap().push(files);
            manifest["config"]["digest"] = digest(config.as_bytes()).into();
            manifest["config"]["size"] = config.len().into();
            manifest["annotations"]["dev.faasw.files-at"] = "/site".into();
        });
    };
    let host = Host::new();
    with_files(&host, "application/vnd.faasw.files.v1.tar+gzip");
    let output = host.create();
    assert!(output.status.success(), "{output:?}");
    let archive = host.at("bundle/rootfs/.faasw-function.files");
    assert_eq!(fs::read(&archive).unwrap(), b"archive");
    let specified = host.read_specification().to_string();
    assert!(
        specified.contains("--files=/function.files:/site"),
        "{specified}"
    );
    assert!(
        specified.contains("\"destination\":\"/function.files\""),
        "{specified}"
    );
    drop(host);
    let host = Host::new();
    with_files(&host, "application/vnd.oci.image.layer.v1.tar+gzip");
    host.assert_refused("beside its module");
    drop(host);
    let host = Host::new();
    with_files(&host, "application/vnd.faasw.files.v1.tar+gzip");
    host.containerd.replace(b"archive", b"ARCHIVE");
    host.assert_refused("does not match its digest");
}

#[test]
fn hostile_artifacts_are_rejected_without_a_call_of_runc() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 9] = [
        ("is shorter than its manifest says", |manifest| {
            manifest["layers"][0]["size"] = 1000.into()
        }),
        ("is longer than its manifest says", |manifest| {
            manifest["layers"][0]["size"] = 3.into()
        }),
        ("more than 67108864", |manifest| {
            manifest["layers"][0]["size"] = (1_u64 << 40).into()
        }),
        ("more than 4194304", |manifest| {
            manifest["config"]["size"] = (1_u64 << 40).into()
        }),
        ("is not a SHA-256 digest", |manifest| {
            manifest["layers"][0]["digest"] = "sha256:../../../../etc/shadow".into()
        }),
        ("its config is of another module", |manifest| {
            manifest["layers"][0]["digest"] = digest(b"other").into()
        }),
        ("cannot be read", |manifest| {
            manifest["layers"][0]["size"] = json!(-1)
        }),
        ("has a layer of evil", |manifest| {
            let layer = json!({ "mediaType": "evil", "digest": digest(b"x"), "size": 1 });
            manifest["layers"].as_array_mut().unwrap().push(layer);
        }),
        ("there is no such option", |manifest| {
            manifest["annotations"]["dev.faasw.data-dir"] = "/".into()
        }),
    ];
    for (why, change) in changes {
        let host = Host::new();
        host.write_specification(&specification("/hello.wasm"));
        host.artifact(b"\0asm module", change);
        let before = host.read_specification();
        host.assert_refused(why);
        assert_eq!(host.read_specification(), before, "{why}");
    }
}

#[test]
fn content_of_containerd_is_verified_by_digest() {
    let host = Host::new();
    host.write_specification(&specification("/hello.wasm"));
    host.artifact(b"\0asm module", |_| {});
    host.containerd.replace(b"\0asm module", b"\0asm M0DULE");
    host.assert_refused("does not match its digest");
    fs::remove_file(host.at("bundle/rootfs/.faasw-module.wasm")).unwrap();
    host.containerd.forget(b"\0asm module");
    host.assert_refused("is not in containerd's content store");
}

#[test]
fn a_tag_that_has_moved_is_rejected() {
    let host = Host::new();
    host.write_specification(&specification("/hello.wasm"));
    host.artifact(b"\0asm module", |_| {});
    host.containerd.made_of(&digest(b"another config"));
    host.assert_refused("leads to another image now");
}

#[test]
fn an_endless_manifest_and_a_missing_containerd_are_errors() {
    let host = Host::new();
    host.write_specification(&specification("/hello.wasm"));
    let large = format!(
        "{{\"schemaVersion\": 2, \"layers\": [], \"x\": \"{}\"}}",
        "x".repeat(5 << 20)
    );
    host.containerd.add_blob(large.as_bytes());
    host.containerd
        .name("registry.test/hello:1", large.as_bytes());
    host.assert_refused("more than 4194304");
    fs::remove_file(host.at("containerd.sock")).unwrap();
    host.assert_refused("containerd: ");
}

#[test]
fn only_processes_executed_in_node_containers_are_restricted() {
    let host = Host::new();
    let process = json!({ "args": ["faasw"], "cwd": "/x", "env": ["LD_PRELOAD=/evil"],
        "user": { "uid": 0, "gid": 0 }, "capabilities": { "effective": ["CAP_SYS_ADMIN"] } });
    let (root, file) = (host.at("root"), host.at("process.json"));
    let log = host.at("bundle/log.json");
    let executed = |is_held: bool| {
        fs::write(&file, process.to_string()).unwrap();
        let arguments = [
            "--root",
            root.to_str().unwrap(),
            "--log",
            log.to_str().unwrap(),
            "exec",
            "--process",
            file.to_str().unwrap(),
            "--detach",
            "c1",
        ];
        assert!(host.run("runc", &arguments).status.success());
        assert!(host.called().unwrap().contains(" exec --process "));
        let now: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(now == process, !is_held, "{now}");
        assert_eq!(now.to_string().contains("CAP_SYS_ADMIN"), !is_held);
    };
    // No container exists.
    executed(false);
    // A container of a runtime that keeps no state where runc keeps it.
    let mut specification = specification("/bin/sh");
    host.write_specification(&specification);
    executed(false);
    specification["annotations"]["faasw.dev/node"] = "1".into();
    host.write_specification(&specification);
    executed(true);
    for (label, is_held) in [("faasw.dev/node=1", true), ("dev.other=1", false)] {
        let state = root.join("c1");
        fs::create_dir_all(&state).unwrap();
        let json = json!({ "config": { "labels": ["bundle=/b", label] } });
        fs::write(state.join("state.json"), json.to_string()).unwrap();
        executed(is_held);
    }
}
