//! A node's command line, as far as benchmarks use it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// How to ask a running node for its statistics.
#[derive(clap::Args)]
pub struct Arguments {
    /// The `faasw` program: with --data-dir, the node's own statistics are reported, too
    #[arg(long, value_name = "FILE", requires = "data_dir")]
    faasw: Option<PathBuf>,
    /// The node's data directory
    #[arg(long, value_name = "DIR", requires = "faasw")]
    data_dir: Option<PathBuf>,
}

impl Arguments {
    /// Returns the node's commands, if both options are present.
    pub fn commands(&self) -> Option<Commands> {
        let (faasw, data_dir) = self.faasw.as_ref().zip(self.data_dir.as_ref())?;
        Some(Commands::new(faasw, data_dir))
    }
}

/// The program `faasw` with a data directory.
#[derive(Clone, Debug)]
pub struct Commands {
    faasw: PathBuf,
    data_dir: PathBuf,
}

/// How many microVMs a node has, by state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MicroVms(pub BTreeMap<String, u64>);

impl MicroVms {
    /// Returns the number of zygotes, which have no function yet.
    pub fn without_function(&self) -> usize {
        self.count("zygote")
    }

    /// Returns the number of instances that wait for a request.
    pub fn warm(&self) -> usize {
        self.count("warm")
    }

    /// Returns the number of instances that run a request.
    pub fn busy(&self) -> usize {
        self.count("busy")
    }

    fn count(&self, state: &str) -> usize {
        let count = self.0.get(state).copied().unwrap_or(0);
        usize::try_from(count).unwrap_or(usize::MAX)
    }
}

impl Commands {
    /// Returns the commands for the node of this data directory.
    pub fn new(faasw: &Path, data_dir: &Path) -> Self {
        Self {
            faasw: faasw.to_owned(),
            data_dir: data_dir.to_owned(),
        }
    }

    /// Runs a command and returns its standard output.
    ///
    /// # Errors
    /// Returns an error with the command's standard error if it fails.
    pub fn run(&self, arguments: &[&str]) -> Result<Vec<u8>> {
        let output = Command::new(&self.faasw)
            .args(arguments)
            .arg("--data-dir")
            .arg(&self.data_dir)
            .output()
            .with_context(|| format!("cannot run {}", self.faasw.display()))?;
        ensure!(
            output.status.success(),
            "faasw {} failed: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
        Ok(output.stdout)
    }

    /// Queries how many microVMs the node has.
    ///
    /// # Errors
    /// Returns an error if the node does not answer, or not as expected.
    pub fn microvms(&self) -> Result<MicroVms> {
        microvms(&self.run(&["stats", "--json"])?)
    }
}

fn microvms(json: &[u8]) -> Result<MicroVms> {
    #[derive(Deserialize)]
    struct Summary {
        microvms: MicroVms,
    }
    let summary: Summary = serde_json::from_slice(json).context("faasw stats --json")?;
    Ok(summary.microvms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microvms_are_counted_by_state() {
        let json = br#"{"functions":1,"microvms":{"busy":0,"warm":4,"ready":2}}"#;
        let found = microvms(json).unwrap();
        assert_eq!((found.0["warm"], found.0.len(), found.busy()), (4, 3, 0));
        assert_eq!(microvms(br#"{"microvms":{"busy":7}}"#).unwrap().busy(), 7);
        assert!(microvms(b"{}").is_err());
    }

    #[test]
    fn a_failed_command_reports_the_reason() {
        let commands = Commands::new(Path::new("ls"), Path::new("/"));
        let error = commands.run(&["stats"]).unwrap_err().to_string();
        assert!(error.starts_with("faasw stats failed: "), "{error}");
        let nowhere = Commands::new(Path::new("/nowhere/faasw"), Path::new("/"));
        assert!(
            nowhere
                .run(&[])
                .unwrap_err()
                .to_string()
                .contains("/nowhere/faasw")
        );
    }
}
