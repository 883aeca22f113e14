//! The specification of a container in which a node of faasw runs.
//!
//! It is made new, and of the given one it takes what is named here: the user, limits and group,
//! the pod's network, the three files by which CRI tells a container its name, its neighbours and
//! its resolvers. So whatever a pod can say, today or in a later version of containerd, has no
//! effect unless it is in this file: capabilities, `privileged`, volumes, devices, hooks,
//! `hostPID`, sysctls, a system-call profile.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::{
    bundle::{Given, Mount, User},
    error::Error,
    groups,
    host::Device,
    options::Process,
    seccomp,
    sharing::{self, Entry},
};

/// By which runc's state tells a container of faasw's: what is executed in it is held to the same.
/// It is none of the annotations that containerd takes from pods.
pub const MARK: &str = "faasw.dev/node";

/// What CRI says of a container, which tools look at.
const OF_CRI: &str = "io.kubernetes.cri.";

/// Who a node is whose pod says that it is root, or says nothing: root without capabilities can
/// make no user namespaces in which there is anybody (Linux 5.12, `verify_root_map`), and nobody
/// misses it where there are no files.
const NOT_ROOT: u32 = 65532;

/// Seconds for the container's group to be given: what takes longer is no start of a container.
const HOOK: u32 = 60;

/// Files that CRI has made for the pod.
const FILES: [&str; 3] = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];

/// What of `/proc` and `/sys` nobody in a container is to see, as for others.
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

/// What nobody in a container is to write.
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// A file that a node has of the host, and nobody in its pod can write to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Where it is.
    pub on_host: PathBuf,
    /// Where the node finds it.
    pub path: &'static str,
    /// Its digest, if that is known: `sha256:` and 64 digits.
    pub digest: Option<String>,
}

/// What a node's container is made of.
#[derive(Debug)]
pub struct Parts<'a> {
    /// The node's root, a folder that all such containers share.
    pub root: &'a str,
    /// The module and the files that are named on its command line.
    pub files: &'a [File],
    /// What runs.
    pub process: Process,
    /// What the host has made of it before.
    pub shared: Option<&'a Entry>,
    /// Which devices there are.
    pub devices: &'a [Device],
    /// The version of faasw.
    pub version: &'a str,
    /// The program that gives the node its container's group, where that can be given ([`groups`]).
    pub dividing: Option<&'a Path>,
}

/// Makes it.
///
/// # Errors
/// What of the given one cannot be.
pub fn of_node(given: &Given, parts: Parts<'_>) -> Result<Value, Error> {
    let is_divided = parts.dividing.is_some();
    let namespaces = namespaces(given, is_divided)?;
    // A name can be given to a namespace of one's own alone.
    let is_named = namespaces
        .iter()
        .any(|one| one.get("type") == Some(&"uts".into()) && one.get("path").is_none());
    let mut annotations: Map<String, Value> = given
        .annotations
        .iter()
        .filter(|(name, _)| name.starts_with(OF_CRI))
        .map(|(name, value)| (name.clone(), value.as_str().into()))
        .collect();
    annotations.insert(MARK.to_owned(), parts.version.into());
    let limits = &given.linux.resources;
    let (user, group) = user(given.process.user.uid, given.process.user.gid);
    let resources = object(
        json!({ "devices": allowed(parts.devices) }),
        [
            ("memory", limits.memory.clone()),
            ("cpu", limits.cpu.clone()),
            ("pids", limits.pids.clone()),
            ("hugepageLimits", limits.hugepage_limits.clone()),
            ("unified", limits.unified.clone()),
        ],
    );
    let mut arguments = parts.process.arguments;
    if parts.shared.is_some() {
        arguments.push(format!("--shared={}", sharing::FOLDER));
        arguments.push(format!("--shared-key={}", sharing::KEY));
    }
    let text = |text: &Option<String>| text.as_deref().map(Value::from);
    let process = object(
        json!({
            "terminal": given.process.terminal,
            "user": { "uid": user, "gid": group },
            "args": arguments,
            "env": parts.process.environment,
            "cwd": "/",
            "capabilities": no_capabilities(),
            "noNewPrivileges": true,
        }),
        [
            ("oomScoreAdj", given.process.oom_score_adj.map(Value::from)),
            ("selinuxLabel", text(&given.process.selinux_label)),
        ],
    );
    let linux = object(
        json!({
            "resources": resources,
            "namespaces": namespaces,
            "devices": devices(parts.devices, user, group),
            "seccomp": seccomp::profile(),
            "maskedPaths": MASKED,
            "readonlyPaths": READ_ONLY,
        }),
        [
            ("cgroupsPath", text(&given.linux.cgroups_path)),
            ("mountLabel", text(&given.linux.mount_label)),
        ],
    );
    let giving = |program: &Path| -> Result<Value, Error> {
        let arguments = [groups::GIVING.to_owned(), user.to_string()];
        let hook = json!({ "path": self::text(program)?, "args": arguments, "timeout": HOOK });
        Ok(json!({ "createRuntime": [hook] }))
    };
    let hooks = parts.dividing.map(giving).transpose()?;
    let hostname = given.hostname.as_str();
    let is_named = is_named && !hostname.is_empty();
    let specification = object(
        json!({
            "ociVersion": given.oci_version,
            "process": process,
            "root": { "path": parts.root, "readonly": true },
            "mounts": mounts(given, parts.files, parts.shared, is_divided)?,
            "annotations": annotations,
            "linux": linux,
        }),
        [
            ("hostname", is_named.then(|| hostname.into())),
            ("hooks", hooks),
        ],
    );
    Ok(specification)
}

/// An object with what there is of the rest.
fn object<const N: usize>(object: Value, rest: [(&str, Option<Value>); N]) -> Value {
    let Value::Object(mut members) = object else {
        return object;
    };
    for (name, value) in rest {
        members.extend(value.map(|value| (name.to_owned(), value)));
    }
    members.into()
}

/// Holds what is to be executed in such a container to what its node is held to.
///
/// # Errors
/// When it is no process.
pub fn of_executed(process: &[u8]) -> Result<Value, Error> {
    let mut process: Map<String, Value> = serde_json::from_slice(process)
        .map_err(|error| Error::Refused(format!("what is to be executed: {error}")))?;
    let asked = process.get("user").cloned().unwrap_or_default();
    let asked: User = serde_json::from_value(asked)
        .map_err(|error| Error::Refused(format!("who is to execute something: {error}")))?;
    let (user, group) = user(asked.uid, asked.gid);
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

/// Who a node is, of whom a pod says: never root.
#[must_use]
pub fn user(user: u32, group: u32) -> (u32, u32) {
    let not_root = |id| if id == 0 { NOT_ROOT } else { id };
    (not_root(user), not_root(group))
}

fn no_capabilities() -> Value {
    json!({ "bounding": [], "effective": [], "inheritable": [], "permitted": [], "ambient": [] })
}

/// The pod's network and name, and else its own: who shares a pod's processes or memory with a node
/// could take `/dev/kvm` from it, and who has the host's could look at all.
fn namespaces(given: &Given, is_divided: bool) -> Result<Vec<Value>, Error> {
    let mut namespaces = vec![
        json!({ "type": "mount" }),
        json!({ "type": "pid" }),
        json!({ "type": "ipc" }),
    ];
    for namespace in &given.linux.namespaces {
        let kind = namespace.kind.as_str();
        match kind {
            "mount" | "pid" | "ipc" => continue,
            // Its own below.
            "cgroup" if is_divided => continue,
            "network" | "uts" | "cgroup" => {}
            "user" => {
                return Err(Error::Refused(
                    "pods with hostUsers: false cannot have functions: /dev/kvm could not be given \
                     to their user".into(),
                ));
            }
            other => {
                return Err(Error::Refused(format!(
                    "a namespace of the kind {other:.20}"
                )));
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
    given: &Given,
    files: &[File],
    shared: Option<&Entry>,
    is_divided: bool,
) -> Result<Vec<Value>, Error> {
    let of_kernel = |kind: &str, destination: &str, options: &[&str]| json!({ "destination": destination, "type": kind, "source": kind, "options": options });
    let from_host = |destination: &str, source: &str| {
        let options = ["bind", "ro", "nosuid", "nodev", "noexec", "rprivate"];
        json!({ "destination": destination, "type": "bind", "source": source, "options": options })
    };
    let still = ["nosuid", "noexec", "nodev"];
    let mut mounts = vec![
        of_kernel("proc", "/proc", &still),
        of_kernel(
            "tmpfs",
            "/dev",
            &["nosuid", "noexec", "mode=755", "size=64k"],
        ),
        of_kernel(
            "devpts",
            "/dev/pts",
            &[
                "nosuid",
                "noexec",
                "newinstance",
                "ptmxmode=0666",
                "mode=0620",
            ],
        ),
        of_kernel("sysfs", "/sys", &["nosuid", "noexec", "nodev", "ro"]),
        // The node reads its limits there, and divides what it is given.
        of_kernel(
            "cgroup",
            "/sys/fs/cgroup",
            &[
                "nosuid",
                "noexec",
                "nodev",
                "relatime",
                if is_divided { "rw" } else { "ro" },
            ],
        ),
        // For the socket by which `faasw stats` and others ask the node.
        of_kernel(
            "tmpfs",
            "/tmp",
            &["nosuid", "noexec", "nodev", "mode=1777", "size=1m"],
        ),
    ];
    for file in files {
        mounts.push(from_host(file.path, text(&file.on_host)?));
    }
    if let Some(entry) = shared {
        // Of the store this and nothing above it.
        mounts.push(from_host(sharing::FOLDER, text(&entry.folder)?));
        mounts.push(from_host(sharing::KEY, text(&entry.key)?));
    }
    let is_file =
        |mount: &&Mount| mount.kind == "bind" && FILES.contains(&mount.destination.as_str());
    for mount in given.mounts.iter().filter(is_file) {
        mounts.push(from_host(&mount.destination, &mount.source));
    }
    Ok(mounts)
}

/// A path, as a specification has it.
///
/// # Errors
/// When it is no text.
pub fn text(path: &Path) -> Result<&str, Error> {
    path.to_str()
        .ok_or_else(|| Error::Refused(format!("{} is no text", path.display())))
}

/// Opened to the container's user and to nobody else in it.
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

/// The same as the control group has it.
fn allowed(devices: &[Device]) -> Vec<Value> {
    let one = |device: &Device| json!({ "allow": true, "type": "c", "major": device.major, "minor": device.minor, "access": "rw" });
    let mut rules = vec![json!({ "allow": false, "access": "rwm" })];
    rules.extend(devices.iter().map(one));
    rules
}

#[cfg(test)]
mod tests;
