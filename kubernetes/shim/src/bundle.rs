//! A container's bundle folder: reads the relevant parts of its specification and replaces it.

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

/// Maximum size of a specification, of runc's state and of a process file, in bytes. Those of
/// containerd have some tens of KiB.
pub const FILE_MAX: u64 = 16 << 20;

/// Annotation in which CRI states the kind of container.
const KIND: &str = "io.kubernetes.cri.container-type";

/// The part of a container's specification that the shim reads. These fields decide what a pod can
/// express; all other fields are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerSpec {
    /// The version of the OCI specification.
    pub oci_version: String,
    /// The process to run.
    #[serde(default)]
    pub process: Process,
    /// The host name inside the container.
    #[serde(default)]
    pub hostname: String,
    /// The mounts.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// The annotations, most of them from CRI.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// The settings that only Linux has.
    #[serde(default)]
    pub linux: Linux,
}

/// The process to run.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Process {
    /// Whether the process has a terminal. If so, runc's shim waits for it.
    pub terminal: bool,
    /// The user and group of the process.
    pub user: User,
    /// The command line.
    pub args: Vec<String>,
    /// The environment variables, as `NAME=VALUE`.
    pub env: Vec<String>,
    /// The adjustment of the kernel's out-of-memory score.
    pub oom_score_adj: Option<i64>,
    /// The SELinux label of the process.
    pub selinux_label: Option<String>,
}

/// The user and group of a process.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct User {
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
}

/// A mount.
#[derive(Debug, Default, Deserialize)]
pub struct Mount {
    /// The mount point inside the container.
    pub destination: String,
    /// The source of the mount.
    #[serde(default)]
    pub source: String,
    /// The type of file system.
    #[serde(default, rename = "type")]
    pub kind: String,
}

/// The settings that only Linux has.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Linux {
    /// The path of the control group.
    pub cgroups_path: Option<String>,
    /// The resource limits.
    pub resources: Resources,
    /// The namespaces: new ones and existing ones to join.
    pub namespaces: Vec<Namespace>,
    /// The SELinux label of mounts.
    pub mount_label: Option<String>,
}

/// Resource limits, passed on unchanged. Device rules are not among them.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Resources {
    /// Limits of memory.
    pub memory: Option<Value>,
    /// Limits of processors.
    pub cpu: Option<Value>,
    /// Limits of processes.
    pub pids: Option<Value>,
    /// Limits of huge pages.
    pub hugepage_limits: Option<Value>,
    /// Files of control groups of version 2.
    pub unified: Option<Value>,
}

/// A namespace.
#[derive(Debug, Deserialize)]
pub struct Namespace {
    /// The kind of namespace.
    #[serde(rename = "type")]
    pub kind: String,
    /// The path of an existing namespace to join. Without it, the container gets a new one.
    pub path: Option<String>,
}

impl ContainerSpec {
    /// Returns whether the container is the pod's sandbox container, not one of the pod's own.
    #[must_use]
    pub fn is_sandbox(&self) -> bool {
        self.annotations
            .get(KIND)
            .is_some_and(|kind| kind == "sandbox")
    }

    /// Returns the memory limit in bytes, if there is one.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        let memory = self.linux.resources.memory.as_ref()?;
        // -1 means unlimited.
        memory.get("limit")?.as_u64()
    }

    /// Returns whether systemd is to make the control group: its path has the form
    /// `SLICE:PREFIX:NAME`. runc itself learns this from an option in its configuration, which
    /// containerd does not pass to a runtime of another name.
    #[must_use]
    pub fn is_systemds(&self) -> bool {
        let path = self.linux.cgroups_path.as_deref().unwrap_or_default();
        let mut parts = path.split(':');
        let slice = parts.next().unwrap_or_default();
        slice.ends_with(".slice") && !slice.contains('/') && parts.count() == 2
    }
}

/// A container's bundle folder.
#[derive(Clone, Debug)]
pub struct Bundle(PathBuf);

impl Bundle {
    /// Returns the bundle at a path, made absolute.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if the path does not exist or cannot be resolved.
    pub fn at(path: &Path) -> Result<Self, Error> {
        // runc uses these paths for mounts, from another working directory.
        let path = path
            .canonicalize()
            .map_err(|error| Error::io(path.display(), error))?;
        Ok(Self(path))
    }

    /// Reads the specification.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if the file cannot be read, and [`Error::Refused`] if it is too large
    /// or is not a specification.
    pub fn read(&self) -> Result<ContainerSpec, Error> {
        let path = self.config();
        let bytes = read(&path)?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Error::Refused(format!("{}: {error}", path.display())))
    }

    /// Replaces the specification.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if the new specification cannot be written. The old one is then still
    /// in place.
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

    /// Returns the folder on which the image is mounted.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.0.join("rootfs")
    }

    fn config(&self) -> PathBuf {
        self.0.join("config.json")
    }
}

/// Reads a file of at most [`FILE_MAX`] bytes.
///
/// # Errors
/// Returns [`Error::Io`] if the file cannot be read, and [`Error::Refused`] if it is too large.
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
            r#"{"ociVersion": "1.1.0",
                "process": {"args": ["a"], "user": {"uid": 7}, "capabilities": {}}}"#,
        )
        .unwrap();
        let container = bundle.read().unwrap();
        assert_eq!(
            (container.process.user.uid, container.process.args.len()),
            (7, 1)
        );
        bundle
            .replace(&serde_json::json!({"ociVersion": "1"}))
            .unwrap();
        assert_eq!(bundle.read().unwrap().oci_version, "1");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn invalid_specifications_are_rejected() {
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
    fn groups_of_systemd_are_recognised_by_their_form() {
        let of = |path: &str| ContainerSpec {
            linux: Linux {
                cgroups_path: Some(path.to_owned()),
                ..Linux::default()
            },
            ..ContainerSpec::default()
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
