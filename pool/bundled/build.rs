//! Builds guest, sandbox, compile helper and egress. Each is built by a separate cargo into a
//! target folder of its own, always optimised.
//!
//! The folders are separate because the outer cargo holds the lock of its target folder. All
//! profiles of the outer build share them, because the parts are the same in each.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

struct Part {
    /// Environment variable that names the built file to the crate.
    variable: &'static str,
    /// Folder that cargo runs in, relative to the workspace's root.
    folder: &'static str,
    package: &'static str,
    /// Path of the built binary below the target folder.
    binary: &'static str,
    /// Sources of the part, relative to the workspace's root.
    sources: &'static [&'static str],
    /// Whether compiled code depends on it.
    is_in_digest: bool,
}

const PARTS: [Part; 4] = [
    Part {
        variable: "FAASW_GUEST",
        folder: "guest-vm/kernel",
        package: "faasw-guest",
        binary: "x86_64-unknown-linux-gnu/release/faasw-guest",
        sources: &[
            "guest-vm/kernel/src",
            "guest-vm/kernel/stubs",
            "guest-vm/kernel/Cargo.toml",
            "guest-vm/kernel/Cargo.lock",
            "guest-vm/kernel/.cargo",
            "guest-vm/kernel/build.rs",
            "guest-vm/kernel/link.ld",
            "guest-vm/abi",
            "guest-vm/runtime/src",
            "guest-vm/runtime/wit",
            "guest-vm/runtime/Cargo.toml",
        ],
        is_in_digest: true,
    },
    Part {
        variable: "FAASW_SANDBOX",
        folder: ".",
        package: "faasw-sandbox",
        binary: "release/faasw-sandbox",
        sources: &[
            "pool/sandbox",
            "jail",
            "pool/fri",
            "seedtree",
            "common",
            "guest-vm/abi",
            "Cargo.lock",
        ],
        is_in_digest: true,
    },
    Part {
        variable: "FAASW_COMPILER",
        folder: ".",
        package: "faasw-compiler",
        binary: "release/faasw-compiler",
        sources: &[
            "compiler/src",
            "compiler/Cargo.toml",
            "compiler/protocol",
            "common",
            "jail",
            "guest-vm/abi",
            "guest-vm/runtime/src",
            "guest-vm/runtime/wit",
            "guest-vm/runtime/Cargo.toml",
            "Cargo.lock",
        ],
        is_in_digest: true,
    },
    Part {
        variable: "FAASW_EGRESS",
        folder: ".",
        package: "faasw-egress",
        binary: "release/faasw-egress",
        sources: &[
            "egress/src",
            "egress/Cargo.toml",
            "egress/policy/src",
            "egress/policy/Cargo.toml",
            "common",
            "jail",
            "guest-vm/abi",
            "Cargo.lock",
        ],
        is_in_digest: false,
    },
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?)
        .ancestors()
        .nth(2)
        .ok_or("the crate is not in a folder of the workspace")?
        .to_owned();
    let target = parts_target()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut digest = Sha256::new();
    for part in PARTS {
        for source in part.sources {
            println!("cargo:rerun-if-changed={}", root.join(source).display());
        }
        let built = build(&part, &root, &target)?;
        // A copy for this build: checkouts that share a target folder overwrite each other's parts.
        let copy = out.join(part.package);
        std::fs::copy(&built, &copy)?;
        let built = copy;
        println!("cargo:rustc-env={}={}", part.variable, built.display());
        if part.is_in_digest {
            digest.update(std::fs::read(&built)?);
        }
    }
    let digest = digest.finalize();
    let short: String = digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    println!("cargo:rustc-env=FAASW_PARTS_DIGEST={short}");
    println!("cargo:rerun-if-changed=build.rs");
    Ok(())
}

/// Returns a folder beside the outer build's profiles.
fn parts_target() -> Result<PathBuf, Box<dyn Error>> {
    // OUT_DIR is TARGET/[TRIPLE/]PROFILE/build/PACKAGE-HASH/out.
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let profile_parent = out
        .ancestors()
        .nth(4)
        .ok_or("OUT_DIR has an unknown shape")?;
    Ok(profile_parent.join("parts"))
}

fn build(part: &Part, root: &Path, target: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let folder = target.join(part.package);
    let mut cargo = Command::new(env::var("CARGO")?);
    cargo
        .current_dir(root.join(part.folder))
        .args(["build", "--release", "--locked", "--package", part.package])
        .arg("--target-dir")
        .arg(&folder);
    if offline() {
        cargo.arg("--offline");
    }
    if part.package == "faasw-compiler" {
        // No request waits for the compile helper, and link-time optimisation takes minutes.
        cargo.args(["--config", "profile.release.lto=false"]);
    }
    if part.package == "faasw-egress" {
        // Egress waits for the network nearly all of its time, so it is optimised for size.
        cargo.args(["--config", "profile.release.opt-level='s'"]);
        cargo.args(["--config", "profile.release.lto='fat'"]);
        cargo.args(["--config", "profile.release.codegen-units=1"]);
        cargo.args(["--config", "profile.release.strip='symbols'"]);
    }
    if part.package == "faasw-sandbox" && env::var_os("CARGO_FEATURE_ABLATION").is_some() {
        cargo.args(["--features", "ablation"]);
    }
    // Variables that the outer cargo sets for its own compilations must not leak into these:
    // clippy's wrapper, flags, the outer target, features and profile.
    for (name, _) in env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        let leaks = name.starts_with("CARGO_")
            && ![
                "CARGO_HOME",
                "CARGO_MAKEFLAGS",
                "CARGO_NET_OFFLINE",
                "CARGO_TERM_COLOR",
            ]
            .contains(&name)
            && !name.starts_with("CARGO_REGISTRIES_")
            && !name.starts_with("CARGO_HTTP_")
            && !name.starts_with("CARGO_SOURCE_");
        if leaks
            || name.starts_with("RUSTC")
            || [
                "RUSTFLAGS",
                "RUSTDOCFLAGS",
                "TARGET",
                "HOST",
                "OPT_LEVEL",
                "PROFILE",
                "DEBUG",
                "NUM_JOBS",
                "OUT_DIR",
                "RUSTDOC",
            ]
            .contains(&name)
        {
            cargo.env_remove(name);
        }
    }
    let status = cargo.status()?;
    if !status.success() {
        return Err(format!("building {} failed: {status}", part.package).into());
    }
    let built = folder.join(part.binary);
    if !built.is_file() {
        return Err(format!("cargo built no {}", built.display()).into());
    }
    Ok(built)
}

/// Returns whether the outer cargo may not use the network. Cargo exposes this only through its own
/// settings.
fn offline() -> bool {
    env::var("CARGO_NET_OFFLINE").is_ok_and(|value| value == "true")
}
