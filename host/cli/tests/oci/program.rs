//! The program, and a node that it deploys to.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use faasw::{Limits, Node};
use serde_json::Value;
use tempfile::TempDir;

use crate::{common, registry::Registry};

/// A node without microVMs, and a home directory without any log-in.
pub struct Desk {
    pub folder: TempDir,
    _node: Node,
}

impl Desk {
    pub async fn new() -> Self {
        Self::with(Limits::default()).await
    }

    /// Makes a desk whose node has these limits.
    pub async fn with(limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let builder = common::builder().data_dir(folder.path().join("data"));
        let node = common::start(builder.admin(true).limits(limits)).await;
        Self {
            folder,
            _node: node,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env("FAASW_DATA_DIR", self.path("data"))
            .stdin(Stdio::null());
        for variable in [
            "DOCKER_CONFIG",
            "REGISTRY_AUTH_FILE",
            "XDG_RUNTIME_DIR",
            "XDG_CONFIG_HOME",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
        ] {
            command.env_remove(variable);
        }
        command
    }

    pub fn faasw(&self, words: &[&str]) -> Output {
        let mut command = self.command(env!("CARGO_BIN_EXE_faasw"));
        command.args(words).output().unwrap()
    }

    /// Returns the standard output of a command that succeeds.
    pub fn done(&self, words: &[&str]) -> String {
        let output = self.faasw(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the standard error of a command that fails.
    pub fn refused(&self, words: &[&str]) -> String {
        let output = self.faasw(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Returns the node's information about a function.
    pub fn inspected(&self, name: &str) -> Value {
        let json = self.done(&["inspect", name, "--json"]);
        let details: Value = serde_json::from_str(&json).unwrap();
        details["function"].clone()
    }
}

/// Returns a unique module that is as valid as these tests need.
pub fn module(what: &str) -> Vec<u8> {
    [b"\0asm\x01\0\0\0", what.as_bytes()].concat()
}

pub fn reference(registry: &Registry, what: &str) -> String {
    format!("{}/team/{what}", registry.name())
}

pub fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}
