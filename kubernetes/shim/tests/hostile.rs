//! Randomly changed input of third parties. The worst result is an error, and nothing forbidden
//! gets into a node's container. The tests print the seed that repeats a run.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use std::env;

use faasw_shim::{
    bundle::ContainerSpec,
    host::Device,
    image::{self, Document},
    options::{ContainerSettings, MODULE},
    protobuf::Reader,
    spec::{self, Parts},
};
use serde_json::{Value, json};

const RUNS: usize = 20_000;

/// Words that change the meaning of a text into which they are inserted.
const WORDS: [&str; 14] = [
    "\"",
    "{",
    "}",
    "[",
    ",",
    "\\u0000",
    "dev.faasw.",
    "application/wasm",
    "sha256:",
    "../../",
    "CAP_SYS_ADMIN",
    "--listen=",
    "bind",
    "18446744073709551616",
];

struct Chance(u64);

impl Chance {
    fn new(name: &str) -> Self {
        let given = env::var("FAASW_TEST_SEED").ok();
        let seed = given.map_or_else(
            || u64::from(std::process::id()),
            |seed| seed.parse().unwrap(),
        );
        println!("FAASW_TEST_SEED={seed} for {name}");
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below a limit (xorshift64).
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    fn changed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(5) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes.truncate(at.max(1)),
                2 => {
                    let word = WORDS[self.below(WORDS.len())].bytes();
                    bytes.splice(at..at, word);
                }
                3 => {
                    let word = WORDS[self.below(WORDS.len())].bytes();
                    let end = (at + word.len()).min(bytes.len());
                    bytes.splice(at..end, word);
                }
                _ => {
                    let from = self.below(bytes.len());
                    let copied = bytes[from..(from + 20).min(bytes.len())].to_vec();
                    bytes.splice(at..at, copied);
                }
            }
        }
        bytes
    }
}

fn specification() -> Value {
    json!({
        "ociVersion": "1.1.0",
        "process": {
            "user": { "uid": 0, "gid": 5 },
            "args": ["/hello.wasm", "--listen=x"],
            "env": ["A=b", "PORT=80", "FAASW_HEALTH_PORT=81"],
            "capabilities": { "effective": ["CAP_SYS_ADMIN"] },
            "oomScoreAdj": 5
        },
        "root": { "path": "/" },
        "hostname": "pod",
        "mounts": [
            { "destination": "/etc/hosts", "type": "bind", "source": "/pods/hosts" },
            { "destination": "/host", "type": "bind", "source": "/" }
        ],
        "annotations": {
            "io.kubernetes.cri.container-name": "hello",
            "dev.faasw.env": "[\"C=d\"]",
            "dev.faasw.accept": "outbound",
            "dev.faasw.memory": "16777216"
        },
        "linux": {
            "resources": { "devices": [{ "allow": true }], "memory": { "limit": 1000 } },
            "cgroupsPath": "/pods/1",
            "namespaces": [
                { "type": "network", "path": "/proc/7/ns/net" },
                { "type": "uts" },
                { "type": "pid", "path": "/proc/1/ns/pid" }
            ]
        }
    })
}

fn node_of(container: &ContainerSpec) -> Option<Value> {
    let settings = ContainerSettings {
        pod: container
            .annotations
            .iter()
            .filter(|(name, _)| name.starts_with("dev.faasw."))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        arguments: container.process.args.clone(),
        environment: container.process.env.clone(),
        ..ContainerSettings::default()
    };
    let parts = Parts {
        root: "/root",
        files: &[],
        process: settings.process().ok()?,
        shared: None,
        devices: &[Device {
            path: "/dev/kvm",
            major: 10,
            minor: 232,
        }],
        version: "1",
        dividing: None,
    };
    spec::node_spec(container, parts).ok()
}

#[test]
fn a_node_is_restricted_for_any_specification() {
    let mut chance = Chance::new("specifications");
    let text = specification().to_string();
    let mut made = 0;
    for _ in 0..RUNS {
        let changed = chance.changed(text.as_bytes());
        let Ok(container) = serde_json::from_slice::<ContainerSpec>(&changed) else {
            continue;
        };
        let Some(node) = node_of(&container) else {
            continue;
        };
        made += 1;
        let process = &node["process"];
        let arguments = process["args"].as_array().unwrap();
        assert_eq!(arguments[..3], ["/bin/faasw", "pod", MODULE]);
        // Options that neither pods nor artifacts may set do not appear.
        for argument in arguments.iter().skip(3) {
            let argument = argument.as_str().unwrap();
            assert!(
                argument.starts_with("--") && argument.contains('='),
                "{argument}"
            );
            for own in ["--listen=", "--data-dir=", "--files=", "--access-log="] {
                assert!(!argument.starts_with(own), "{argument}");
            }
        }
        for set in process["capabilities"].as_object().unwrap().values() {
            assert_eq!(set, &json!([]));
        }
        assert_eq!(process["noNewPrivileges"], true);
        assert!(
            process["user"]["uid"] != 0 && process["user"]["gid"] != 0,
            "{process}"
        );
        assert_eq!(node["root"], json!({ "path": "/root", "readonly": true }));
        for mount in node["mounts"].as_array().unwrap() {
            if mount["type"] == "bind" {
                let to = mount["destination"].as_str().unwrap();
                assert!(
                    [MODULE, "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"].contains(&to),
                    "{to}"
                );
                assert!(mount["options"].as_array().unwrap().contains(&"ro".into()));
            }
        }
        let namespaces = node["linux"]["namespaces"].as_array().unwrap();
        for kind in ["mount", "pid", "ipc"] {
            let own: Vec<&Value> = namespaces
                .iter()
                .filter(|one| one["type"] == kind)
                .collect();
            assert_eq!(own, [&json!({ "type": kind })]);
        }
        assert_eq!(
            node["linux"]["resources"]["devices"][0],
            json!({ "allow": false, "access": "rwm" })
        );
        assert_eq!(node["linux"]["devices"].as_array().unwrap().len(), 1);
        assert_eq!(node.get("hooks"), None);
    }
    assert!(
        made > RUNS / 100,
        "{made} of {RUNS} changed ones were specifications"
    );
}

#[test]
fn manifests_and_configs_are_read_or_rejected() {
    let mut chance = Chance::new("manifests");
    let digest = format!("sha256:{}", "a".repeat(64));
    let layer = json!({ "mediaType": "application/wasm", "digest": digest, "size": 9 });
    let manifest = json!({ "schemaVersion": 2, "config": layer, "layers": [layer],
        "annotations": { "dev.faasw.arg": "[\"x\"]" } });
    let index = json!({ "schemaVersion": 2, "manifests": [{ "mediaType": "m", "digest": digest,
        "size": 9, "platform": { "os": "wasip2", "architecture": "wasm" } }] });
    let config = json!({ "layerDigests": [digest] }).to_string();
    let texts = [manifest.to_string(), index.to_string()];
    let mut modules = 0;
    for run in 0..RUNS {
        let changed = chance.changed(texts[run % 2].as_bytes());
        let Ok(document) = Document::read(&changed) else {
            continue;
        };
        let found = if document.is_index() {
            document.of_wasi().cloned()
        } else {
            document.module().ok().map(|(module, _)| module.clone())
        };
        let Some(found) = found else {
            continue;
        };
        if let Ok(digest) = found.digest() {
            modules += 1;
            assert!(
                digest.len() == 71 && !digest.contains(['/', '.']),
                "{digest}"
            );
        }
        // The changed config is accepted or refused for this layer, without a panic.
        let _ = image::belong_together(&chance.changed(config.as_bytes()), &found);
        let settings = ContainerSettings {
            artifact: document.annotations(),
            ..ContainerSettings::default()
        };
        if let Ok(process) = settings.process() {
            let mut said = process.arguments.iter().skip(3);
            assert!(
                said.all(|argument| argument.starts_with("--")),
                "{process:?}"
            );
        }
    }
    assert!(
        modules > RUNS / 100,
        "{modules} of {RUNS} changed ones had a module"
    );
}

#[test]
fn messages_are_read_or_rejected() {
    let mut chance = Chance::new("messages");
    let message = [
        0x0a, 3, 0x12, 1, b'x', 0x18, 0x96, 1, 0x29, 1, 2, 3, 4, 5, 6, 7, 8, 0x12, 2, 0x0a, 0,
    ];
    for _ in 0..RUNS {
        let changed = chance.changed(&message);
        let read = Reader::new(&changed).count();
        assert!(read <= changed.len());
        let _ = (Reader::text(&changed, 1), Reader::last(&changed, 2));
    }
}
