//! A container's folder: its specification, read as far as it matters, and replaced.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;

use crate::error::Error;

/// Most bytes of a specification, of runc's state and of a process: containerd's have some tens of
/// KiB.
pub const FILE_MAX: u64 = 16 << 20;

/// Where CRI writes what kind of container it is.
const KIND: &str = "io.kubernetes.cri.container-type";

/// What of a container's specification is looked at. What stands here decides what a pod can say;
/// the rest is not read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Given {
    /// The version of the specification.
    pub oci_version: String,
    /// What is to run.
    #[serde(default)]
    pub process: Process,
    /// The host's name in it.
    #[serde(default)]
    pub hostname: String,
    /// What is mounted.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// What is written to it, by CRI above all.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// What only Linux has.
    #[serde(default)]
    pub linux: Linux,
}

/// What is to run.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// Whether it has a terminal: runc's shim waits for it then.
    #[serde(default)]
    pub terminal: bool,
    /// Who it is.
    #[serde(default)]
    pub user: User,
    /// Its command line.
    #[serde(default)]
    pub args: Vec<String>,
    /// Its variables.
    #[serde(default)]
    pub env: Vec<String>,
    /// How likely the kernel ends it.
    #[serde(default)]
    pub oom_score_adj: Option<i64>,
    /// SELinux's label.
    #[serde(default)]
    pub selinux_label: Option<String>,
}

/// Who a process is.
#[derive(Debug, Default, Deserialize)]
pub struct User {
    /// The user's number.
    #[serde(default)]
    pub uid: u32,
    /// The group's.
    #[serde(default)]
    pub gid: u32,
}

/// What is mounted.
#[derive(Debug, Default, Deserialize)]
pub struct Mount {
    /// Where to.
    pub destination: String,
    /// What.
    #[serde(default)]
    pub source: String,
    /// The kind of file system.
    #[serde(default, rename = "type")]
    pub kind: String,
}

/// What only Linux has.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Linux {
    /// The control group.
    #[serde(default)]
    pub cgroups_path: Option<String>,
    /// Its limits.
    #[serde(default)]
    pub resources: Resources,
    /// Namespaces, its own and others'.
    #[serde(default)]
    pub namespaces: Vec<Namespace>,
    /// SELinux's label of mounts.
    #[serde(default)]
    pub mount_label: Option<String>,
}

/// Limits, as they are. Devices are none of them.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// Of memory.
    #[serde(default)]
    pub memory: Option<Value>,
    /// Of processors.
    #[serde(default)]
    pub cpu: Option<Value>,
    /// Of processes.
    #[serde(default)]
    pub pids: Option<Value>,
    /// Of large pages.
    #[serde(default)]
    pub hugepage_limits: Option<Value>,
    /// Files of control groups of version 2.
    #[serde(default)]
    pub unified: Option<Value>,
}

/// A namespace.
#[derive(Debug, Deserialize)]
pub struct Namespace {
    /// Which kind.
    #[serde(rename = "type")]
    pub kind: String,
    /// Of whom, if it is not its own.
    #[serde(default)]
    pub path: Option<String>,
}

impl Given {
    /// Whether it is what holds a pod together, and no container of it.
    #[must_use]
    pub fn is_sandbox(&self) -> bool {
        self.annotations
            .get(KIND)
            .is_some_and(|kind| kind == "sandbox")
    }

    /// Bytes of memory that it may have, if somebody says.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        let memory = self.linux.resources.memory.as_ref()?;
        // -1 is no limit.
        memory.get("limit")?.as_u64()
    }

    /// Whether its control group is one that systemd is to make: `SLICE:PREFIX:NAME`. Who
    /// configures runc says so by an option, which a runtime of another name is not given.
    #[must_use]
    pub fn is_systemds(&self) -> bool {
        let path = self.linux.cgroups_path.as_deref().unwrap_or_default();
        let mut parts = path.split(':');
        let slice = parts.next().unwrap_or_default();
        slice.ends_with(".slice") && !slice.contains('/') && parts.count() == 2
    }
}

/// A container's folder.
#[derive(Clone, Debug)]
pub struct Bundle(PathBuf);

impl Bundle {
    /// The one at a path.
    ///
    /// # Errors
    /// When there is nothing.
    pub fn at(path: &Path) -> Result<Self, Error> {
        // runc mounts by these paths, from elsewhere.
        let path = path
            .canonicalize()
            .map_err(|error| Error::io(path.display(), error))?;
        Ok(Self(path))
    }

    /// Reads its specification.
    ///
    /// # Errors
    /// When it is none, or too large.
    pub fn read(&self) -> Result<Given, Error> {
        let path = self.config();
        let bytes = read(&path)?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Error::Refused(format!("{}: {error}", path.display())))
    }

    /// Puts another specification in its place.
    ///
    /// # Errors
    /// When it cannot be written; then the old one stands, or nothing is started.
    pub fn replace(&self, specification: &Value) -> Result<(), Error> {
        let new = self.0.join("config.json.faasw");
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all(specification.to_string().as_bytes())?;
            fs::rename(&new, self.config())
        };
        write().map_err(|error| Error::io(new.display(), error))
    }

    /// Where its image is mounted.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.0.join("rootfs")
    }

    fn config(&self) -> PathBuf {
        self.0.join("config.json")
    }
}

/// Reads a file that is not too large.
///
/// # Errors
/// When it is, or cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |error| Error::io(path.display(), error);
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(FILE_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > FILE_MAX {
        Err(Error::Refused(format!(
            "{} has more than {FILE_MAX} bytes",
            path.display()
        )))
    } else {
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specification_is_read_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let bundle = Bundle::at(folder.path()).unwrap();
        assert!(bundle.read().is_err());
        let config = folder.path().join("config.json");
        fs::write(
            &config,
            r#"{"ociVersion": "1.1.0", "process": {"args": ["a"], "user": {"uid": 7}, "capabilities": {}}}"#,
        )
        .unwrap();
        let given = bundle.read().unwrap();
        assert_eq!((given.process.user.uid, given.process.args.len()), (7, 1));
        bundle
            .replace(&serde_json::json!({"ociVersion": "1"}))
            .unwrap();
        assert_eq!(bundle.read().unwrap().oci_version, "1");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_specification_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let bundle = Bundle::at(folder.path()).unwrap();
        let config = folder.path().join("config.json");
        for wrong in [
            "",
            "[]",
            "{}",
            r#"{"ociVersion": "1", "process": {"args": ["a"]}, "process": {"args": ["b"]}}"#,
            r#"{"ociVersion": "1", "process": {"user": {"uid": -1}}}"#,
        ] {
            fs::write(&config, wrong).unwrap();
            assert!(bundle.read().is_err(), "{wrong}");
        }
        File::create(&config).unwrap().set_len(1 << 30).unwrap();
        let refused = bundle.read().unwrap_err().to_string();
        assert!(refused.contains("more than"), "{refused}");
    }

    #[test]
    fn the_groups_of_systemd_are_told_by_their_form() {
        let of = |path: &str| Given {
            linux: Linux {
                cgroups_path: Some(path.to_owned()),
                ..Linux::default()
            },
            ..Given::default()
        };
        assert!(of("kubepods-burstable-pod1.slice:cri-containerd:abc").is_systemds());
        for other in [
            "",
            "/kubepods/pod1/abc",
            "/x.slice:a:b",
            "a:b:c",
            "x.slice:a",
        ] {
            assert!(!of(other).is_systemds(), "{other}");
        }
    }
}
