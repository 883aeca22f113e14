//! runc's state of containers, which has their annotations and so their pods.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde::Deserialize;

use crate::{bundle, error::Error};

/// Folder of the state that runc keeps for runc's shim, with a subfolder for each namespace.
pub const ROOT: &str = "/run/containerd/runc";

/// Annotation in which CRI stores the pod of a container.
const POD: &str = "io.kubernetes.cri.sandbox-id";

/// Returns a container's annotations, as `name=value`.
///
/// # Errors
/// Returns an error if the state cannot be read or parsed.
pub fn labels(state: &Path) -> Result<Vec<String>, Error> {
    #[derive(Deserialize)]
    struct State {
        config: Config,
    }
    #[derive(Deserialize)]
    struct Config {
        #[serde(default)]
        labels: Vec<String>,
    }
    let bytes = bundle::read(state)?;
    let state: State = serde_json::from_slice(&bytes)
        .map_err(|error| Error::Refused(format!("{}: {error}", state.display())))?;
    Ok(state.config.labels)
}

/// Deletes the remaining containers of a pod whose shim is gone. containerd (2.1) makes the shim
/// delete only the container with the pod's own id. The processes of the other containers would
/// keep running. Failures are ignored.
pub fn end_containers(runc: &Path, root: &Path, pod: &str) {
    let Ok(containers) = fs::read_dir(root) else {
        return;
    };
    let of_pod = format!("{POD}={pod}");
    for container in containers.flatten() {
        let name = container.file_name();
        let state = container.path().join("state.json");
        let is_of_pod = labels(&state).is_ok_and(|labels| labels.contains(&of_pod));
        if name == pod || !is_of_pod {
            continue;
        }
        let mut delete = Command::new(runc);
        delete.arg("--root").arg(root).args(["delete", "--force"]);
        // The output is discarded, because containerd reads this program's output.
        let delete = delete.arg(name).stdin(Stdio::null()).output();
        drop(delete);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn containers_of_a_pod_end_with_it_and_others_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        for (container, label) in [
            ("pod1", format!("{POD}=pod1")),
            ("mine", format!("{POD}=pod1")),
            ("other", format!("{POD}=pod11")),
            ("false", format!("x={POD}=pod1")),
        ] {
            let state = root.join(container);
            fs::create_dir_all(&state).unwrap();
            let json = serde_json::json!({ "config": { "labels": ["bundle=/b", label] } });
            fs::write(state.join("state.json"), json.to_string()).unwrap();
        }
        fs::create_dir(root.join("broken")).unwrap();
        fs::write(root.join("broken/state.json"), "{").unwrap();
        let (runc, called) = (folder.path().join("runc"), folder.path().join("called"));
        let program = format!("#!/bin/sh\necho \"$@\" >>{}\n", called.display());
        fs::write(&runc, program).unwrap();
        fs::set_permissions(&runc, fs::Permissions::from_mode(0o755)).unwrap();
        end_containers(&runc, &root, "pod1");
        let called = fs::read_to_string(called).unwrap();
        let expected = format!("--root {} delete --force mine\n", root.display());
        assert_eq!(called, expected);
        end_containers(&runc, Path::new("/nowhere"), "pod1");
    }
}
