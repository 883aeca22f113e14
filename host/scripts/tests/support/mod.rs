//! Projects in temporary folders.

#![allow(dead_code, reason = "not every suite uses everything")]

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use faasw_scripts::{Limits, Preparation, PrepareError, Prepared, TABLE, prepare};
use serde_json::Value;
use tempfile::TempDir;

pub const LIMITS: Limits = Limits {
    bytes: 64 << 20,
    files: 10_000,
};

/// A project.
pub struct Project {
    temp: TempDir,
    root: PathBuf,
}

impl Project {
    pub fn new(files: &[(&str, &str)]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(temp.path()).unwrap().join("project");
        fs::create_dir(&root).unwrap();
        let project = Self { temp, root };
        for (path, content) in files {
            project.write(path, content);
        }
        project
    }

    /// Returns a project with the packages of the fixture.
    pub fn with_packages(files: &[(&str, &str)]) -> Self {
        let project = Self::new(files);
        let archive = include_bytes!("../fixtures/packages.tar.zst");
        let mut unpacked = Vec::new();
        let mut decoder = ruzstd::decoding::StreamingDecoder::new(&archive[..]).unwrap();
        decoder.read_to_end(&mut unpacked).unwrap();
        tar::Archive::new(&unpacked[..])
            .unpack(&project.root)
            .unwrap();
        project
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder around the project.
    pub fn around(&self) -> PathBuf {
        fs::canonicalize(self.temp.path()).unwrap()
    }

    pub fn write(&self, path: &str, content: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn prepare(&self, entry: &str) -> Preparation {
        prepare(
            &self.root.join(entry),
            Some(&self.root),
            LIMITS,
            &mut |_| {},
        )
    }

    pub fn bundle(&self, entry: &str) -> Bundle {
        Bundle(self.prepare(entry).result.unwrap())
    }

    pub fn error(&self, entry: &str) -> PrepareError {
        self.prepare(entry).result.unwrap_err()
    }
}

/// A prepared script.
pub struct Bundle(pub Prepared);

impl Bundle {
    pub fn text(&self, path: &str) -> &str {
        let files = &self.0.files;
        let found = files.iter().find(|(name, _)| name == path);
        let (_, content) = found.unwrap_or_else(|| panic!("no {path} in {:?}", self.paths()));
        std::str::from_utf8(content).unwrap()
    }

    pub fn has(&self, path: &str) -> bool {
        self.paths().contains(&path)
    }

    pub fn paths(&self) -> Vec<&str> {
        self.0.files.iter().map(|(path, _)| &**path).collect()
    }

    fn module(&self, path: &str) -> Value {
        let table: Value = serde_json::from_str(self.text(TABLE)).unwrap();
        table["modules"][path].clone()
    }

    pub fn kind(&self, path: &str) -> String {
        self.module(path)["kind"].as_str().unwrap().to_owned()
    }

    /// Returns the path of what an import means, or an empty text.
    pub fn target(&self, path: &str, specifier: &str) -> String {
        let module = self.module(path);
        module["imports"][specifier]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}
