use super::*;

/// A container that requests everything that a specification can contain.
fn greedy() -> ContainerSpec {
    let specification = json!({
        "ociVersion": "1.1.0",
        "process": {
            "terminal": false,
            "user": { "uid": 1000, "gid": 1001, "additionalGids": [0, 104] },
            "args": ["/hello.wasm"],
            "env": ["LD_PRELOAD=/evil.so", "GLIBC_TUNABLES=x"],
            "cwd": "/home",
            "capabilities": { "bounding": ["CAP_SYS_ADMIN"], "ambient": ["CAP_SYS_ADMIN"] },
            "rlimits": [{ "type": "RLIMIT_CORE", "hard": 1, "soft": 1 }],
            "noNewPrivileges": false,
            "apparmorProfile": "evil",
            "oomScoreAdj": 900,
            "scheduler": { "policy": "SCHED_FIFO" }
        },
        "root": { "path": "/", "readonly": false },
        "hostname": "pod",
        "domainname": "evil",
        "hooks": { "createRuntime": [{ "path": "/bin/sh" }] },
        "mounts": [
            { "destination": "/bin", "type": "bind", "source": "/evil", "options": ["rbind"] },
            { "destination": "/function.wasm", "type": "bind", "source": "/etc/shadow" },
            { "destination": "/etc/ld.so.preload", "type": "bind", "source": "/evil" },
            { "destination": "/", "type": "bind", "source": "/" },
            { "destination": "/host", "type": "bind", "source": "/" },
            { "destination": "/etc/hosts/../../bin", "type": "bind", "source": "/evil" },
            { "destination": "/etc/resolv.conf", "type": "overlay", "source": "/evil" },
            { "destination": "/etc/hosts", "type": "bind", "source": "/pods/hosts",
                "options": ["rw", "suid"] }
        ],
        "annotations": {
            "io.kubernetes.cri.container-name": "c",
            "org.systemd.property.ExecStart": "evil",
            "run.oci.hooks.stderr": "/evil",
            "faasw.dev/node": "evil"
        },
        "linux": {
            "sysctl": { "kernel.core_pattern": "|/evil" },
            "resources": {
                "devices": [{ "allow": true, "access": "rwm" }],
                "memory": { "limit": 268435456 },
                "cpu": { "shares": 2 },
                "network": { "classID": 1 }
            },
            "cgroupsPath": "/kubepods/pod1/c",
            "namespaces": [
                { "type": "network", "path": "/proc/7/ns/net" },
                { "type": "ipc", "path": "/proc/7/ns/ipc" },
                { "type": "uts", "path": "/proc/7/ns/uts" },
                { "type": "pid", "path": "/proc/7/ns/pid" },
                { "type": "mount", "path": "/proc/1/ns/mnt" }
            ],
            "devices": [{ "path": "/dev/sda", "type": "b", "major": 8, "minor": 0 }],
            "seccomp": { "defaultAction": "SCMP_ACT_ALLOW" },
            "rootfsPropagation": "shared",
            "maskedPaths": [],
            "readonlyPaths": []
        }
    });
    serde_json::from_value(specification).unwrap()
}

fn made(container: &ContainerSpec) -> Value {
    made_with(container, None, None)
}

fn made_with(container: &ContainerSpec, shared: Option<&Entry>, dividing: Option<&Path>) -> Value {
    let devices = [Device {
        path: "/dev/kvm",
        major: 10,
        minor: 232,
    }];
    let process = Process {
        arguments: vec!["/bin/faasw".into()],
        environment: Vec::new(),
        function: Vec::new(),
        tables: Vec::new(),
    };
    let files = [File {
        on_host: "/run/b/rootfs/m.wasm".into(),
        path: "/function.wasm",
        digest: None,
    }];
    let parts = Parts {
        root: "/opt/faasw/1/root",
        files: &files,
        process,
        shared,
        devices: &devices,
        version: "1",
        dividing,
    };
    node_spec(container, parts).unwrap()
}

#[test]
fn only_harmless_settings_of_a_pod_are_kept() {
    let made = made(&greedy());
    let text = made.to_string();
    for refused in [
        "evil", "CAP_", "shadow", "sda", "/bin/sh", "GLIBC", "rlimits", "shared", "104", "SCHED",
        "\"rw\"",
    ] {
        // The control group's rule for the device is the only place with write access.
        let text = text.replace("\"access\":\"rw\"", "");
        assert!(!text.contains(refused), "{refused}: {text}");
    }
    assert_eq!(made["process"]["user"], json!({ "uid": 1000, "gid": 1001 }));
    assert_eq!(made["process"]["noNewPrivileges"], true);
    assert_eq!(made["process"]["oomScoreAdj"], 900);
    assert_eq!(
        made["root"],
        json!({ "path": "/opt/faasw/1/root", "readonly": true })
    );
    assert_eq!(
        made["annotations"],
        json!({ "faasw.dev/node": "1", "io.kubernetes.cri.container-name": "c" })
    );
    assert_eq!(made["linux"]["resources"]["memory"]["limit"], 268_435_456);
    assert_eq!(made["linux"]["resources"].as_object().unwrap().len(), 3);
    assert_eq!(made["linux"]["cgroupsPath"], "/kubepods/pod1/c");
    assert_eq!(made["linux"]["seccomp"], seccomp::profile());
    assert_eq!(
        made["linux"]["maskedPaths"].as_array().unwrap().len(),
        MASKED.len()
    );
}

#[test]
fn a_node_can_only_read_its_own_entry_of_the_store() {
    let entry = Entry {
        folder: "/state/shared/n/1/entry".into(),
        key: "/state/shared/n/1/key".into(),
    };
    let made = made_with(&greedy(), Some(&entry), None);
    let options = ["--shared=/shared/entry", "--shared-key=/shared/key"];
    assert_eq!(
        made["process"]["args"],
        json!(["/bin/faasw", options[0], options[1]])
    );
    let mounts = made["mounts"].as_array().unwrap().iter();
    let of_store = mounts.filter(|mount| mount["source"].as_str().unwrap().starts_with("/state"));
    let of_store: Vec<&Value> = of_store.collect();
    assert_eq!(of_store.len(), 2);
    for (mount, name) in of_store.into_iter().zip(["entry", "key"]) {
        assert_eq!(mount["destination"], format!("/shared/{name}"));
        assert_eq!(mount["source"], format!("/state/shared/n/1/{name}"));
        let options = mount["options"].as_array().unwrap();
        for option in ["ro", "nosuid", "nodev", "noexec"] {
            assert!(options.contains(&option.into()), "{option}");
        }
    }
}

#[test]
fn the_control_group_is_delegated_if_possible() {
    let mut container = greedy();
    let shown = |made: &Value| {
        let mounts = made["mounts"].as_array().unwrap().iter();
        let groups = mounts.filter(|mount| mount["destination"] == "/sys/fs/cgroup");
        let options: Vec<_> = groups.map(|mount| mount["options"][4].clone()).collect();
        let all = made["linux"]["namespaces"].as_array().unwrap().clone();
        let own: Vec<_> = { all.into_iter() }
            .filter(|one| one["type"] == "cgroup")
            .collect();
        (options, own)
    };
    let text = r#"{ "type": "cgroup", "path": "/proc/1/ns/cgroup" }"#;
    let of_host = serde_json::from_str(text).unwrap();
    container.linux.namespaces.push(of_host);
    let path = Path::new("/opt/faasw/1/bin/containerd-shim-faasw-v1");
    let made_so = made_with(&container, None, Some(path));
    assert_eq!(
        shown(&made_so),
        (vec![json!("rw")], vec![json!({ "type": "cgroup" })])
    );
    let hook = json!({ "path": path, "args": ["faasw-groups", "1000"], "timeout": 60 });
    assert_eq!(made_so["hooks"], json!({ "createRuntime": [hook] }));
    // If the group cannot be delegated, the node only reads it, and there is no hook.
    let made_else = made(&greedy());
    assert_eq!(shown(&made_else), (vec![json!("ro")], vec![]));
    assert_eq!(made_else.get("hooks"), None);
}

#[test]
fn a_node_shares_only_network_and_host_name_with_its_pod() {
    let mut container = greedy();
    let made_namespaces =
        |container: &ContainerSpec| made(container)["linux"]["namespaces"].clone();
    let expected = json!([
        { "type": "mount" },
        { "type": "pid" },
        { "type": "ipc" },
        { "type": "network", "path": "/proc/7/ns/net" },
        { "type": "uts", "path": "/proc/7/ns/uts" }
    ]);
    assert_eq!(made_namespaces(&container), expected);
    assert_eq!(made(&container).get("hostname"), None);
    // A pod in the host's namespaces: the node has its own namespace of processes nevertheless.
    container.linux.namespaces.clear();
    let expected = json!([{ "type": "mount" }, { "type": "pid" }, { "type": "ipc" }]);
    assert_eq!(made_namespaces(&container), expected);
    let user = json!({ "type": "user" });
    container.linux.namespaces = vec![serde_json::from_value(user).unwrap()];
    assert!(namespaces(&container, false).is_err());
}

#[test]
fn only_the_user_can_open_the_device() {
    let made = made(&greedy());
    assert_eq!(
        made["linux"]["devices"],
        json!([{ "path": "/dev/kvm", "type": "c", "major": 10, "minor": 232, "fileMode": 0o600,
            "uid": 1000, "gid": 1001 }])
    );
    assert_eq!(
        made["linux"]["resources"]["devices"],
        json!([
            { "allow": false, "access": "rwm" },
            { "allow": true, "type": "c", "major": 10, "minor": 232, "access": "rw" }
        ])
    );
}

#[test]
fn no_node_runs_as_root() {
    let mut container = greedy();
    container.process.user.uid = 0;
    container.process.user.gid = 0;
    let made = made(&container);
    let not_root = json!({ "uid": NOT_ROOT, "gid": NOT_ROOT });
    assert_eq!(made["process"]["user"], not_root);
    assert_eq!(made["linux"]["devices"][0]["uid"], NOT_ROOT);
}

#[test]
fn files_of_the_pod_are_always_read_only() {
    let made = made(&greedy());
    let mounts = made["mounts"].as_array().unwrap();
    let of_host: Vec<&Value> = mounts
        .iter()
        .filter(|mount| mount["type"] == "bind")
        .collect();
    let destinations: Vec<&Value> = of_host.iter().map(|mount| &mount["destination"]).collect();
    assert_eq!(destinations, ["/function.wasm", "/etc/hosts"]);
    for mount in of_host {
        assert_eq!(
            mount["options"],
            json!(["bind", "ro", "nosuid", "nodev", "noexec", "rprivate"])
        );
    }
}

#[test]
fn an_executed_process_gets_no_more_rights_than_the_node() {
    let process = json!({
        "terminal": true,
        "consoleSize": { "height": 1, "width": 1 },
        "user": { "uid": 0, "gid": 0 },
        "args": ["faasw", "stats"],
        "env": ["LD_PRELOAD=/evil.so"],
        "cwd": "/evil",
        "capabilities": { "effective": ["CAP_SYS_ADMIN"] },
        "apparmorProfile": "evil",
        "rlimits": [],
        "ioPriority": {}
    });
    let held = exec_process_spec(process.to_string().as_bytes()).unwrap();
    let text = held.to_string();
    assert!(
        !text.contains("evil") && !text.contains("CAP_") && !text.contains("ioPriority"),
        "{text}"
    );
    assert_eq!(held["noNewPrivileges"], true);
    assert_eq!(held["args"], json!(["faasw", "stats"]));
    assert_eq!(held["user"], json!({ "uid": NOT_ROOT, "gid": NOT_ROOT }));
    assert!(exec_process_spec(b"[]").is_err());
}
