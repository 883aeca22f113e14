//! The program as containerd and runc's shim call it, with a containerd, a runc and a shim of runc that are not real.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod containerd;

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Mutex, MutexGuard, PoisonError},
};

use containerd::{Containerd, digest};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_containerd-shim-faasw-v1");

/// An installation, programs that say how they were called, and a container.
struct Host {
    folder: tempfile::TempDir,
    containerd: Containerd,
    /// A program that is written while another test forks is busy when it is to be executed.
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

impl Host {
    fn new() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["1/bin", "1/path", "1/root/bin", "programs", "bundle/rootfs"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        // `current_exe` follows links, and the installation is where the program is.
        fs::copy(PROGRAM, at("1/bin/containerd-shim-faasw-v1")).unwrap();
        std::os::unix::fs::symlink("../bin/containerd-shim-faasw-v1", at("1/path/runc")).unwrap();
        let script = format!(
            "#!/bin/sh\n{{ echo \"$0 $*\"; echo \"$PATH $FAASW_SHIM_CONTAINERD $FAASW_SHIM_NAMESPACE\"; cat; }} >{}\n",
            at("called").display()
        );
        for program in [
            "programs/runc",
            "programs/containerd-shim-runc-v2",
            "1/root/bin/faasw",
        ] {
            fs::write(at(program), &script).unwrap();
            fs::set_permissions(at(program), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let containerd = Containerd::start(&at("containerd.sock"));
        Self {
            folder,
            containerd,
            _alone: alone,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the program under a name.
    fn run(&self, name: &str, arguments: &[&str]) -> Output {
        let program = match name {
            "runc" => self.at("1/path/runc"),
            _ => self.at("1/bin/containerd-shim-faasw-v1"),
        };
        let path = format!(
            "{}:{}:/bin",
            self.at("1/path").display(),
            self.at("programs").display()
        );
        Command::new(program)
            .arg0(name)
            .args(arguments)
            .env_clear()
            .env("PATH", path)
            .env("FAASW_SHIM_CONTAINERD", self.at("containerd.sock"))
            .env("FAASW_SHIM_NAMESPACE", "k8s.io")
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap()
    }

    fn create(&self) -> Output {
        let (log, bundle) = (self.at("log.json"), self.at("bundle"));
        let (log, bundle) = (log.to_str().unwrap(), bundle.to_str().unwrap());
        self.run(
            "runc",
            &[
                "--root",
                "/r",
                "--log",
                log,
                "--log-format",
                "json",
                "create",
                "--bundle",
                bundle,
                "c1",
            ],
        )
    }

    fn is_refused(&self, why: &str) {
        let output = self.create();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{said}");
        let log = fs::read_to_string(self.at("log.json")).unwrap();
        let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        assert_eq!(last["level"], "error");
        assert!(last["msg"].as_str().unwrap().contains(why), "{log}");
        assert_eq!(self.called(), None, "runc was called");
    }

    /// How a program was called, once.
    fn called(&self) -> Option<String> {
        let called = fs::read_to_string(self.at("called")).ok()?;
        fs::remove_file(self.at("called")).unwrap();
        Some(called)
    }

    fn specify(&self, specification: &Value) {
        fs::write(self.at("bundle/config.json"), specification.to_string()).unwrap();
    }

    fn specified(&self) -> Value {
        serde_json::from_slice(&fs::read(self.at("bundle/config.json")).unwrap()).unwrap()
    }

    /// An artifact with a module, and what was made to be wrong with it.
    fn artifact(&self, module: &[u8], change: impl FnOnce(&mut Value)) {
        let config = json!({ "os": "wasip2", "layerDigests": [digest(module)] }).to_string();
        let mut manifest = json!({
            "schemaVersion": 2,
            "config": { "mediaType": "application/vnd.wasm.config.v0+json", "digest": digest(config.as_bytes()), "size": config.len() },
            "layers": [{ "mediaType": "application/wasm", "digest": digest(module), "size": module.len() }],
            "annotations": { "dev.faasw.memory": "16777216" }
        });
        change(&mut manifest);
        self.containerd.hold(config.as_bytes());
        self.containerd.hold(module);
        let manifest = manifest.to_string();
        self.containerd.hold(manifest.as_bytes());
        self.containerd
            .name("registry.test/hello:1", manifest.as_bytes());
    }
}

fn specification(command: &str) -> Value {
    json!({
        "ociVersion": "1.1.0",
        "process": { "args": [command, "x"], "env": ["A=b"], "user": { "uid": 1000 }, "capabilities": { "effective": ["CAP_SYS_ADMIN"] } },
        "root": { "path": "rootfs" },
        "annotations": {
            "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.container-name": "hello",
            "io.kubernetes.cri.image-name": "registry.test/hello:1"
        },
        "linux": { "cgroupsPath": "/pods/1" }
    })
}

#[test]
fn containerd_gets_the_shim_of_runc_with_this_one_for_its_runc() {
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
fn a_start_says_what_the_host_lacks() {
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
    // Which of them this host lacks first is its own affair.
    assert!(
        !output.status.success() && said.contains("this host cannot run functions of faasw"),
        "{said}"
    );
    assert_eq!(host.called(), None);
}

#[test]
fn what_is_no_function_reaches_runc_as_it_was() {
    let host = Host::new();
    let mut sandbox = specification("/pause");
    sandbox["annotations"]["io.kubernetes.cri.container-type"] = "sandbox".into();
    host.specify(&sandbox);
    // The record and image of a sandbox are nobody's business.
    assert!(host.create().status.success());
    assert_eq!(host.specified(), sandbox);
    assert!(host.called().unwrap().contains("runc --root /r --log"));
    let ordinary = specification("/bin/sh");
    host.specify(&ordinary);
    host.artifact(b"layer", |manifest| {
        manifest["layers"][0]["mediaType"] = "application/vnd.oci.image.layer.v1.tar".into()
    });
    assert!(host.create().status.success());
    assert_eq!(host.specified(), ordinary);
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
fn groups_of_systemd_are_made_by_it() {
    let host = Host::new();
    let mut sandbox = specification("/pause");
    sandbox["annotations"]["io.kubernetes.cri.container-type"] = "sandbox".into();
    sandbox["linux"]["cgroupsPath"] = "kubepods-pod1.slice:cri-containerd:c1".into();
    host.specify(&sandbox);
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
    host.specify(&specification("/hello.wasm"));
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
    let specified = host.specified();
    assert_eq!(
        specified["process"]["args"],
        json!([
            "/bin/faasw",
            "pod",
            "/function.wasm",
            "--name=hello",
            "--args=x",
            "--memory=16",
            "--env=A=b"
        ])
    );
    assert_eq!(
        specified["root"]["path"],
        host.at("1/root").canonicalize().unwrap().to_str().unwrap()
    );
    assert_eq!(specified["annotations"]["faasw.dev/node"], "1");
    assert!(!specified.to_string().contains("CAP_"));
}

#[test]
fn hostile_artifacts_are_refused_and_runc_is_not_called() {
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
        ("no digest", |manifest| {
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
        host.specify(&specification("/hello.wasm"));
        host.artifact(b"\0asm module", change);
        let before = host.specified();
        host.is_refused(why);
        assert_eq!(host.specified(), before, "{why}");
    }
}

#[test]
fn what_containerd_has_is_held_against_its_digest() {
    let host = Host::new();
    host.specify(&specification("/hello.wasm"));
    host.artifact(b"\0asm module", |_| {});
    host.containerd.replace(b"\0asm module", b"\0asm M0DULE");
    host.is_refused("is something else");
    fs::remove_file(host.at("bundle/rootfs/.faasw-module.wasm")).unwrap();
    host.containerd.forget(b"\0asm module");
    host.is_refused("is not in containerd's content store");
}

#[test]
fn a_tag_that_has_moved_since_is_refused() {
    let host = Host::new();
    host.specify(&specification("/hello.wasm"));
    host.artifact(b"\0asm module", |_| {});
    host.containerd.made_of(&digest(b"another config"));
    host.is_refused("has become another one");
}

#[test]
fn a_manifest_without_end_and_a_containerd_that_is_gone_are_refused() {
    let host = Host::new();
    host.specify(&specification("/hello.wasm"));
    let large = format!(
        "{{\"schemaVersion\": 2, \"layers\": [], \"x\": \"{}\"}}",
        "x".repeat(5 << 20)
    );
    host.containerd.hold(large.as_bytes());
    host.containerd
        .name("registry.test/hello:1", large.as_bytes());
    host.is_refused("more than 4194304");
    fs::remove_file(host.at("containerd.sock")).unwrap();
    host.is_refused("containerd: ");
}

#[test]
fn what_is_executed_in_a_nodes_container_is_held_and_elsewhere_it_is_not() {
    let host = Host::new();
    let process = json!({ "args": ["faasw"], "cwd": "/x", "env": ["LD_PRELOAD=/evil"], "user": { "uid": 0, "gid": 0 }, "capabilities": { "effective": ["CAP_SYS_ADMIN"] } });
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
    // No container at all.
    executed(false);
    // One of a runtime that keeps nothing where runc does.
    let mut specification = specification("/bin/sh");
    host.specify(&specification);
    executed(false);
    specification["annotations"]["faasw.dev/node"] = "1".into();
    host.specify(&specification);
    executed(true);
    for (label, is_held) in [("faasw.dev/node=1", true), ("dev.other=1", false)] {
        let state = root.join("c1");
        fs::create_dir_all(&state).unwrap();
        let json = json!({ "config": { "labels": ["bundle=/b", label] } });
        fs::write(state.join("state.json"), json.to_string()).unwrap();
        executed(is_held);
    }
}
