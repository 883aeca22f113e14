//! Deployments in progress.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::FunctionName;

/// A deployment in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentInfo {
    /// The function.
    pub function: FunctionName,
    /// The current stage.
    pub stage: DeployStage,
    /// The number of others before it in the stage's queue, if it waits in one: deployments, or
    /// compilations and seeds, which requests may need, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_behind: Option<usize>,
}

/// The stages of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeployStage {
    /// The deployment has not started, because too many deployments are in progress.
    Waiting,
    /// The module is being compiled.
    Compiling,
    /// The function's code runs up to the point at which its seed is frozen.
    Initialising,
    /// The version is being stored, and its first instances are being made.
    Storing,
}

/// Formats the stage as a phrase that follows the function's name and a colon.
impl fmt::Display for DeploymentInfo {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.stage, self.queued_behind) {
            (DeployStage::Waiting, Some(behind)) => {
                write!(text, "queued behind {behind} other deployments")
            }
            (DeployStage::Waiting, None) => text.write_str("about to begin"),
            (DeployStage::Compiling, Some(behind)) => {
                write!(text, "queued behind {behind} other compilations")
            }
            (DeployStage::Compiling, None) => text.write_str("compiling"),
            (DeployStage::Initialising, Some(behind)) => {
                write!(text, "queued behind {behind} other initialisations")
            }
            (DeployStage::Initialising, None) => {
                text.write_str("initialising: its own code runs up to where it is frozen")
            }
            (DeployStage::Storing, _) => text.write_str("storing it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deployment_info_shows_the_stage_or_the_queue_position() {
        let told = |stage, queued_behind| {
            let function = FunctionName::new("f").unwrap();
            let info = DeploymentInfo {
                function,
                stage,
                queued_behind,
            };
            let json = serde_json::to_string(&info).unwrap();
            assert_eq!(serde_json::from_str::<DeploymentInfo>(&json).unwrap(), info);
            info.to_string()
        };
        assert!(told(DeployStage::Waiting, Some(3)).contains("3 other deployments"));
        assert!(told(DeployStage::Compiling, Some(0)).contains("0 other compilations"));
        assert!(told(DeployStage::Initialising, Some(2)).contains("2 other initialisations"));
        assert_eq!(told(DeployStage::Compiling, None), "compiling");
        assert!(!told(DeployStage::Initialising, None).contains("compil"));
    }
}
