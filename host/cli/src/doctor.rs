//! `doctor`: reports what this host offers, and runs a function as a test.

use std::time::{Duration, Instant};

use faasw::{
    Confinement, FunctionOptions, Node, Timing,
    host::{Finding, FindingState, findings, open_files_finding},
};
use http::Request;
use serde::Serialize;

use super::{
    args::Doctor,
    confine,
    exit::Exit,
    output::{duration, print, print_json},
};

/// The function of the self-test, and its expected answer.
const FUNCTION: &str = include_str!("self-test.wat");
const ANSWER: &[u8] = b"from a microVM!\n\n";

/// The results of all checks.
#[derive(Serialize)]
struct Report {
    findings: Vec<FindingOutput>,
    stages: Vec<Stage>,
    /// The reason why the self-test failed, if it did.
    failure: Option<String>,
}

#[derive(Serialize)]
struct FindingOutput {
    what: &'static str,
    state: &'static str,
    detail: String,
}

/// A successful stage of the self-test.
#[derive(Serialize)]
struct Stage {
    stage: &'static str,
    #[serde(rename = "us", serialize_with = "microseconds")]
    took: Duration,
}

/// Prints the results. Fails if functions cannot run on this host.
pub async fn doctor(args: Doctor) -> Result<(), Exit> {
    let mut stages = Vec::new();
    let confinement = Confinement::from(args.confinement);
    let tested = self_test(confinement, &mut stages).await;
    let report = Report {
        findings: findings(confinement)
            .into_iter()
            .chain([open_files_finding(), confine::finding()])
            .map(FindingOutput::from)
            .collect(),
        stages,
        failure: tested.as_ref().err().map(ToString::to_string),
    };
    if args.format.json {
        print_json(&report)?;
    } else {
        print(report.text())?;
    }
    // By the exit code, scripts distinguish a host without KVM from a failed test.
    tested.map_err(Exit::silent)
}

/// Compiles a function, makes its seed and sends it a request.
async fn self_test(confinement: Confinement, stages: &mut Vec<Stage>) -> Result<(), Exit> {
    let mut done = |stage, took| stages.push(Stage { stage, took });
    let begun = Instant::now();
    let builder = Node::builder().zygotes(1).confinement(confinement);
    let node = builder.start().await?;
    done("start the node", begun.elapsed());
    let result = run(&node, &mut done).await;
    node.shutdown().await;
    result.map_err(Exit::failure)
}

async fn run(node: &Node, done: &mut impl FnMut(&'static str, Duration)) -> Result<(), String> {
    let name = "self-test";
    let deployed = node
        .deploy(name, FUNCTION, FunctionOptions::default())
        .await
        .map_err(|error| error.to_string())?;
    done("compile", deployed.compile_time.unwrap_or_default());
    done("make the seed", deployed.seed_time);

    let begun = Instant::now();
    let request = Request::new(String::new());
    let response = node.invoke(name, request).await;
    let (response, body) = response.into_parts();
    let body = body.into_bytes().await.map_err(|error| error.to_string())?;
    if response.status != 200 || body != ANSWER {
        return Err(format!(
            "the function returned {} with {:?}",
            response.status,
            String::from_utf8_lossy(&body)
        ));
    }
    done("answer a request", begun.elapsed());
    if let Some(timing) = response.extensions.get::<Timing>() {
        done("  wait for a sandbox", timing.queue);
        done("  fork", timing.fork);
        done("  resume", timing.init);
        done("  run the function", timing.exec);
    }
    Ok(())
}

impl Report {
    fn text(&self) -> String {
        let mut text = String::from("This host\n");
        for FindingOutput {
            what,
            state,
            detail,
        } in &self.findings
        {
            text.push_str(&format!("  {state:4}  {what}: {detail}\n"));
        }
        text.push_str("Self-test\n");
        for Stage { stage, took } in &self.stages {
            text.push_str(&format!("  ok    {stage}: {}\n", duration(*took)));
        }
        if let Some(failure) = &self.failure {
            text.push_str(&format!("  FAIL  {failure}\n"));
        }
        text
    }
}

impl From<Finding> for FindingOutput {
    fn from(finding: Finding) -> Self {
        Self {
            what: finding.what,
            state: match finding.state {
                FindingState::Good => "good",
                FindingState::Poor => "poor",
                FindingState::Bad => "bad",
            },
            detail: finding.detail,
        }
    }
}

fn microseconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}
