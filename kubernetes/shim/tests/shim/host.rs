//! A host with the program installed, and with test programs in place of containerd, runc and
//! runc's shim.

use std::{
    ffi::CString,
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::PathBuf,
    process::{Command, Output},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::containerd::{Containerd, digest};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_containerd-shim-faasw-v1");

/// An installation, programs that record how they were called, and a container.
pub struct Host {
    folder: tempfile::TempDir,
    pub containerd: Containerd,
    mounted: Vec<PathBuf>,
    /// Tests run one at a time: a program that is written while another test forks is busy
    /// (`ETXTBSY`) when it is to be executed.
    _alone: MutexGuard<'static, ()>,
}

impl Drop for Host {
    fn drop(&mut self) {
        for mounted in &self.mounted {
            // Detached, because a process that the shim has started may still use it.
            let _ = unmount(mounted, UnmountFlags::DETACH);
        }
    }
}

static ALONE: Mutex<()> = Mutex::new(());

impl Host {
    pub fn new() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["1/bin", "1/path", "1/root/bin", "programs", "bundle/rootfs"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        // `current_exe` follows links, and the installation is found by the program's path.
        fs::copy(PROGRAM, at("1/bin/containerd-shim-faasw-v1")).unwrap();
        std::os::unix::fs::symlink("../bin/containerd-shim-faasw-v1", at("1/path/runc")).unwrap();
        let script = format!(
            "#!/bin/sh\n{{ echo \"$0 $*\"; \
             echo \"$PATH $FAASW_SHIM_CONTAINERD $FAASW_SHIM_NAMESPACE\"; cat; }} >{}\n",
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
            mounted: Vec::new(),
            _alone: alone,
        }
    }

    /// Mounts an empty disk of this size, so that it does not matter how full the disk with these
    /// tests is.
    pub fn mount(&mut self, name: &str, mebibytes: u64) {
        let (at, size) = (self.at(name), format!("size={mebibytes}m,mode=755"));
        fs::create_dir(&at).unwrap();
        let size = CString::new(size).unwrap();
        mount("faasw-test", &at, "tmpfs", MountFlags::empty(), &*size).unwrap();
        self.mounted.push(at);
    }

    /// Unmounts a disk and removes its folder.
    pub fn unmount(&mut self, name: &str) {
        let at = self.at(name);
        unmount(&at, UnmountFlags::DETACH).unwrap();
        fs::remove_dir(&at).unwrap();
        self.mounted.retain(|mounted| *mounted != at);
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the program under this name (`argv[0]`).
    pub fn run(&self, name: &str, arguments: &[&str]) -> Output {
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

    pub fn create(&self) -> Output {
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

    pub fn assert_refused(&self, why: &str) {
        let output = self.create();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{said}");
        let log = fs::read_to_string(self.at("log.json")).unwrap();
        let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        assert_eq!(last["level"], "error");
        assert!(last["msg"].as_str().unwrap().contains(why), "{log}");
        assert_eq!(self.called(), None, "runc was called");
    }

    /// Returns how a program was last called, and removes that record.
    pub fn called(&self) -> Option<String> {
        let called = fs::read_to_string(self.at("called")).ok()?;
        fs::remove_file(self.at("called")).unwrap();
        Some(called)
    }

    pub fn write_specification(&self, specification: &Value) {
        fs::write(self.at("bundle/config.json"), specification.to_string()).unwrap();
    }

    pub fn read_specification(&self) -> Value {
        serde_json::from_slice(&fs::read(self.at("bundle/config.json")).unwrap()).unwrap()
    }

    /// Adds an artifact with a module to containerd. `change` may damage its manifest.
    pub fn artifact(&self, module: &[u8], change: impl FnOnce(&mut Value)) {
        let config = json!({ "os": "wasip2", "layerDigests": [digest(module)] }).to_string();
        let mut manifest = json!({
            "schemaVersion": 2,
            "config": {
                "mediaType": "application/vnd.wasm.config.v0+json",
                "digest": digest(config.as_bytes()),
                "size": config.len()
            },
            "layers": [
                { "mediaType": "application/wasm", "digest": digest(module), "size": module.len() }
            ],
            "annotations": { "dev.faasw.memory": "16777216" }
        });
        change(&mut manifest);
        self.containerd.add_blob(config.as_bytes());
        self.containerd.add_blob(module);
        let manifest = manifest.to_string();
        self.containerd.add_blob(manifest.as_bytes());
        self.containerd
            .name("registry.test/hello:1", manifest.as_bytes());
    }
}

/// Returns the user and group of the container. This process can give files to that user.
pub fn user() -> (u32, u32) {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if user.is_root() {
        (1000, 1000)
    } else {
        (user.as_raw(), group.as_raw())
    }
}

pub fn specification(command: &str) -> Value {
    let (user, group) = user();
    json!({
        "ociVersion": "1.1.0",
        "process": {
            "args": [command, "x"],
            "env": ["A=b"],
            "user": { "uid": user, "gid": group },
            "capabilities": { "effective": ["CAP_SYS_ADMIN"] }
        },
        "root": { "path": "rootfs" },
        "annotations": {
            "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.container-name": "hello",
            "io.kubernetes.cri.image-name": "registry.test/hello:1"
        },
        "linux": { "cgroupsPath": "/pods/1" }
    })
}
