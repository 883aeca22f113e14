//! The specification of a container in which a node of faasw runs.
//!
//! The specification is built from scratch. It takes from the given one only what this file names:
//! the user, limits and group, the pod's network, and the three files by which CRI tells a
//! container its name, its neighbours and its resolvers. So a setting of a pod has no effect unless
//! this file handles it, today or in a later version of containerd: capabilities, `privileged`,
//! volumes, devices, hooks, `hostPID`, sysctls, a system-call profile.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::{
    bundle::{ContainerSpec, Mount, User},
    error::Error,
    groups,
    host::Device,
    options::Process,
    seccomp,
    sharing::{self, Entry},
};

/// Annotation that marks a container of faasw in runc's state. A process executed in such a
/// container gets the same restrictions. containerd does not take this annotation from pods.
pub const MARK: &str = "faasw.dev/node";

/// Prefix of the annotations in which CRI describes a container, for tools.
const OF_CRI: &str = "io.kubernetes.cri.";

/// User and group of a node whose pod specifies root or nothing. Root without capabilities can make
/// no user namespace that maps any user (Linux 5.12, `verify_root_map`). The node does not need
/// root, because the container has no files that need it.
const NOT_ROOT: u32 = 65532;

/// Timeout of the hook that delegates the container's group, in seconds. If it takes longer, the
/// container's start has failed.
const HOOK: u32 = 60;

/// Files that CRI creates for the pod.
const FILES: [&str; 3] = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];

/// Paths of `/proc` and `/sys` that are hidden in the container, as in other containers.
const MASKED: [&str; 11] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// Paths that are read-only in the container.
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// A file of the host that is mounted into the node's container, read-only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The path on the host.
    pub on_host: PathBuf,
    /// The path in the container.
    pub path: &'static str,
    /// The digest, `sha256:` and 64 digits, if it is known.
    pub digest: Option<String>,
}

/// The parts of a node's container.
#[derive(Debug)]
pub struct Parts<'a> {
    /// The node's root folder, which all such containers share.
    pub root: &'a str,
    /// The module and the files that the command line names.
    pub files: &'a [File],
    /// The node's process.
    pub process: Process,
    /// The shared func-image of the function, if the host has one.
    pub shared: Option<&'a Entry>,
    /// The devices of the host.
    pub devices: &'a [Device],
    /// The version of faasw.
    pub version: &'a str,
    /// The program that delegates the container's group to the node, if that is possible
    /// ([`groups`]).
    pub dividing: Option<&'a Path>,
}

/// Returns the specification of a node's container.
///
/// # Errors
/// Returns [`Error::Refused`] if the given specification has a namespace that is unsupported, or if
/// a path is not UTF-8.
pub fn node_spec(container: &ContainerSpec, parts: Parts<'_>) -> Result<Value, Error> {
    let is_divided = parts.dividing.is_some();
    let namespaces = namespaces(container, is_divided)?;
    // Only a new namespace can get a name.
    let is_named = namespaces
        .iter()
        .any(|one| one.get("type") == Some(&"uts".into()) && one.get("path").is_none());
    let mut annotations: Map<String, Value> = container
        .annotations
        .iter()
        .filter(|(name, _)| name.starts_with(OF_CRI))
        .map(|(name, value)| (name.clone(), value.as_str().into()))
        .collect();
    annotations.insert(MARK.to_owned(), parts.version.into());
    let limits = &container.linux.resources;
    let (user, group) = user(container.process.user.uid, container.process.user.gid);
    let resources = without_nulls(json!({
        "devices": allowed(parts.devices),
        "memory": limits.memory,
        "cpu": limits.cpu,
        "pids": limits.pids,
        "hugepageLimits": limits.hugepage_limits,
        "unified": limits.unified,
    }));
    let mut arguments = parts.process.arguments;
    if parts.shared.is_some() {
        arguments.push(format!("--shared={}", sharing::FOLDER));
        arguments.push(format!("--shared-key={}", sharing::KEY));
    }
    let process = without_nulls(json!({
        "terminal": container.process.terminal,
        "user": { "uid": user, "gid": group },
        "args": arguments,
        "env": parts.process.environment,
        "cwd": "/",
        "capabilities": no_capabilities(),
        "noNewPrivileges": true,
        "oomScoreAdj": container.process.oom_score_adj,
        "selinuxLabel": container.process.selinux_label,
    }));
    let linux = without_nulls(json!({
        "resources": resources,
        "namespaces": namespaces,
        "devices": devices(parts.devices, user, group),
        "seccomp": seccomp::profile(),
        "maskedPaths": MASKED,
        "readonlyPaths": READ_ONLY,
        "cgroupsPath": container.linux.cgroups_path,
        "mountLabel": container.linux.mount_label,
    }));
    let hook_of = |program: &Path| -> Result<Value, Error> {
        let arguments = [groups::HOOK_NAME.to_owned(), user.to_string()];
        let hook = json!({ "path": text(program)?, "args": arguments, "timeout": HOOK });
        Ok(json!({ "createRuntime": [hook] }))
    };
    let hooks = parts.dividing.map(hook_of).transpose()?;
    let hostname = container.hostname.as_str();
    let is_named = is_named && !hostname.is_empty();
    Ok(without_nulls(json!({
        "ociVersion": container.oci_version,
        "process": process,
        "root": { "path": parts.root, "readonly": true },
        "mounts": mounts(container, parts.files, parts.shared, is_divided)?,
        "annotations": annotations,
        "linux": linux,
        "hostname": is_named.then_some(hostname),
        "hooks": hooks,
    })))
}

/// Removes the members of an object that are null.
fn without_nulls(mut object: Value) -> Value {
    if let Value::Object(members) = &mut object {
        members.retain(|_, value| !value.is_null());
    }
    object
}

/// Returns the specification of a process to execute in a node's container, with the restrictions
/// of the node.
///
/// # Errors
/// Returns [`Error::Refused`] if the bytes are not a process's specification.
pub fn exec_process_spec(process: &[u8]) -> Result<Value, Error> {
    let mut process: Map<String, Value> = serde_json::from_slice(process)
        .map_err(|error| Error::Refused(format!("the process to execute: {error}")))?;
    let wanted = process.get("user").cloned().unwrap_or_default();
    let wanted: User = serde_json::from_value(wanted)
        .map_err(|error| Error::Refused(format!("the user of the process to execute: {error}")))?;
    let (user, group) = user(wanted.uid, wanted.gid);
    process.retain(|name, _| {
        matches!(
            name.as_str(),
            "terminal" | "consoleSize" | "args" | "oomScoreAdj" | "selinuxLabel"
        )
    });
    process.insert("user".into(), json!({ "uid": user, "gid": group }));
    process.insert("cwd".into(), "/".into());
    process.insert("env".into(), json!(["PATH=/bin"]));
    process.insert("capabilities".into(), no_capabilities());
    process.insert("noNewPrivileges".into(), true.into());
    Ok(process.into())
}

/// Returns the user and group of a node, from those of its pod. Neither is ever root.
#[must_use]
pub fn user(user: u32, group: u32) -> (u32, u32) {
    let not_root = |id| if id == 0 { NOT_ROOT } else { id };
    (not_root(user), not_root(group))
}

fn no_capabilities() -> Value {
    json!({ "bounding": [], "effective": [], "inheritable": [], "permitted": [], "ambient": [] })
}

/// Returns the namespaces: the pod's network and name, and otherwise new ones. If a pod shared its
/// process or IPC namespace with a node, its other processes could take `/dev/kvm` from the node. A
/// node in the host's namespaces could observe everything.
fn namespaces(container: &ContainerSpec, is_divided: bool) -> Result<Vec<Value>, Error> {
    let mut namespaces = vec![
        json!({ "type": "mount" }),
        json!({ "type": "pid" }),
        json!({ "type": "ipc" }),
    ];
    for namespace in &container.linux.namespaces {
        let kind = namespace.kind.as_str();
        match kind {
            "mount" | "pid" | "ipc" => continue,
            // A new one is added below.
            "cgroup" if is_divided => continue,
            "network" | "uts" | "cgroup" => {}
            "user" => {
                return Err(Error::Refused(
                    "pods with hostUsers: false cannot have functions: /dev/kvm could not be given \
                     to their user".into(),
                ));
            }
            other => {
                let why = format!("the kind of namespace {other:.20} is not supported");
                return Err(Error::Refused(why));
            }
        }
        namespaces.push(match &namespace.path {
            Some(path) if !path.is_empty() => json!({ "type": kind, "path": path }),
            _ => json!({ "type": kind }),
        });
    }
    if is_divided {
        namespaces.push(json!({ "type": "cgroup" }));
    }
    Ok(namespaces)
}

fn mounts(
    container: &ContainerSpec,
    files: &[File],
    shared: Option<&Entry>,
    is_divided: bool,
) -> Result<Vec<Value>, Error> {
    let of_kernel = |kind: &str, destination: &str, options: &str| {
        let options: Vec<_> = options.split(',').collect();
        json!({
            "destination": destination, "type": kind, "source": kind, "options": options
        })
    };
    let from_host = |destination: &str, source: &str| {
        let options = ["bind", "ro", "nosuid", "nodev", "noexec", "rprivate"];
        json!({ "destination": destination, "type": "bind", "source": source, "options": options })
    };
    // The node reads its limits there, and divides its group if it may.
    let groups = if is_divided {
        "nosuid,noexec,nodev,relatime,rw"
    } else {
        "nosuid,noexec,nodev,relatime,ro"
    };
    let terminals = "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620";
    let mut mounts = vec![
        of_kernel("proc", "/proc", "nosuid,noexec,nodev"),
        of_kernel("tmpfs", "/dev", "nosuid,noexec,mode=755,size=64k"),
        of_kernel("devpts", "/dev/pts", terminals),
        of_kernel("sysfs", "/sys", "nosuid,noexec,nodev,ro"),
        of_kernel("cgroup", "/sys/fs/cgroup", groups),
        // For the socket that `faasw stats` and other commands connect to.
        of_kernel("tmpfs", "/tmp", "nosuid,noexec,nodev,mode=1777,size=1m"),
    ];
    for file in files {
        mounts.push(from_host(file.path, text(&file.on_host)?));
    }
    if let Some(entry) = shared {
        // Only this entry of the store is visible.
        mounts.push(from_host(sharing::FOLDER, text(&entry.folder)?));
        mounts.push(from_host(sharing::KEY, text(&entry.key)?));
    }
    let is_file =
        |mount: &&Mount| mount.kind == "bind" && FILES.contains(&mount.destination.as_str());
    for mount in container.mounts.iter().filter(is_file) {
        mounts.push(from_host(&mount.destination, &mount.source));
    }
    Ok(mounts)
}

/// Returns a path as a string, for a specification.
///
/// # Errors
/// Returns [`Error::Refused`] if the path is not UTF-8.
pub fn text(path: &Path) -> Result<&str, Error> {
    path.to_str()
        .ok_or_else(|| Error::Refused(format!("{} is not UTF-8", path.display())))
}

/// Returns the device files, which only the container's user can open.
fn devices(devices: &[Device], user: u32, group: u32) -> Vec<Value> {
    let one = |device: &Device| {
        json!({
            "path": device.path,
            "type": "c",
            "major": device.major,
            "minor": device.minor,
            "fileMode": 0o600,
            "uid": user,
            "gid": group,
        })
    };
    devices.iter().map(one).collect()
}

/// Returns the device rules of the control group, which allow only these devices.
fn allowed(devices: &[Device]) -> Vec<Value> {
    let one = |device: &Device| {
        json!({
            "allow": true, "type": "c", "major": device.major, "minor": device.minor, "access": "rw"
        })
    };
    let mut rules = vec![json!({ "allow": false, "access": "rwm" })];
    rules.extend(devices.iter().map(one));
    rules
}

#[cfg(test)]
mod tests;
