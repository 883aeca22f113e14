//! The functions of a report, and their goals from issue 4.

use std::{path::PathBuf, str::FromStr};

use super::figure::Goal;

/// A function to be measured on the node and its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name of the function; `hello`, `js`, `python` and `go` have goals.
    pub name: String,
    /// File of the component.
    pub file: PathBuf,
    /// When the function's seed is frozen, if not by the node's own choice.
    pub freeze: Option<String>,
}

/// The goals of a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goals {
    /// p50 to the fresh peer's, over one connection.
    pub latency: Goal,
    /// Throughput to the fresh peer's, over many connections.
    pub throughput: Goal,
    /// Memory per warm instance in bytes: unique set size, and the decrease of available memory.
    pub memory: Option<(Goal, Goal)>,
}

/// p50 to the warm peer's, over one connection.
pub const WARM: Goal = Goal::AtMost(1.6);
/// p99/p50 to the fresh peer's.
pub const TAIL: Goal = Goal::AtMost(1.0);

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;

impl Function {
    /// Returns the function's goals, if it is a known one.
    pub fn goals(&self) -> Option<Goals> {
        let of_engines = Goals {
            latency: Goal::AtMost(0.4),
            throughput: Goal::AtLeast(1.0),
            memory: None,
        };
        match self.name.as_str() {
            "hello" => Some(Goals {
                latency: Goal::AtMost(0.9),
                throughput: Goal::AtLeast(0.9),
                memory: Some((Goal::AtMost(400.0 * KIB), Goal::AtMost(1.5 * MIB))),
            }),
            "js" => Some(Goals {
                memory: Some((Goal::AtMost(3.0 * MIB), Goal::AtMost(5.0 * MIB))),
                ..of_engines
            }),
            "python" | "go" => Some(of_engines),
            _ => None,
        }
    }

    /// Returns the function's name, with its freeze policy if that is not the node's choice.
    pub fn title(&self) -> String {
        match &self.freeze {
            Some(freeze) => format!("{} ({freeze})", self.name),
            None => self.name.clone(),
        }
    }
}

impl FromStr for Function {
    type Err = String;

    /// Parses `NAME=FILE` or `NAME=FILE:FREEZE`. Without a policy, Go is frozen after
    /// initialisation, which its goals assume.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text
            .split_once('=')
            .ok_or("a function is NAME=FILE, or NAME=FILE:FREEZE")?;
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || !name.chars().all(fits) {
            return Err("a name has small letters, digits and hyphens".to_owned());
        }
        let (file, freeze) = match rest.rsplit_once(':') {
            Some((file, freeze @ ("auto" | "before-init" | "after-init"))) => (file, Some(freeze)),
            _ => (rest, (name == "go").then_some("after-init")),
        };
        Ok(Self {
            name: name.to_owned(),
            file: file.into(),
            freeze: freeze.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_a_name_a_file_and_perhaps_a_freeze_policy() {
        let function: Function = "js=built/js:x.wasm".parse().unwrap();
        assert_eq!(function.file, PathBuf::from("built/js:x.wasm"));
        assert_eq!((function.title().as_str(), &function.freeze), ("js", &None));
        let function: Function = "x=a.wasm:before-init".parse().unwrap();
        assert_eq!(function.title(), "x (before-init)");
        assert!("x".parse::<Function>().is_err());
        assert!("../x=a.wasm".parse::<Function>().is_err());
    }

    #[test]
    fn go_is_frozen_after_initialisation_as_its_goals_say() {
        let go: Function = "go=a.wasm".parse().unwrap();
        assert_eq!(go.freeze.as_deref(), Some("after-init"));
        let go: Function = "go=a.wasm:auto".parse().unwrap();
        assert_eq!(go.freeze.as_deref(), Some("auto"));
    }

    #[test]
    fn known_functions_have_goals() {
        let goals = |name: &str| format!("{name}=f").parse::<Function>().unwrap().goals();
        assert_eq!(goals("hello").unwrap().latency, Goal::AtMost(0.9));
        assert_eq!(goals("python").unwrap().throughput, Goal::AtLeast(1.0));
        assert_eq!(goals("mine"), None);
    }
}
