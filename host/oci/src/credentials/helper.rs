//! Helpers that store logins: `docker-credential-NAME get`.
//!
//! A helper is the user's own program. It may still hang or write too much.

use std::{io, process::Stdio, time::Duration};

use faasw_common::text::Line;
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::Command,
    time::timeout,
};

use super::{Credential, CredentialError};

/// The timeout of a helper. Some helpers prompt their user.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Maximum size of an answer in bytes.
const ANSWER_MAX: u64 = 64 << 10;

/// The answer of all helpers for an unknown registry.
const UNKNOWN: &[u8] = b"credentials not found in native keychain";

/// The user name with which a helper marks a token.
const TOKEN_USER: &str = "<token>";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// Asks a helper for the credential of a registry. Returns `None` if the helper does not have one.
pub(super) async fn ask(name: &str, server: &str) -> Result<Option<Credential>, CredentialError> {
    // The helper is searched in `PATH`, and must not lead to a place that a settings file names.
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let program = format!("docker-credential-{name}");
    if name.is_empty() || !name.bytes().all(is_fine) {
        return Err(failed(&program, "that is no name of a helper"));
    }
    query(&program, server, TIME_MAX).await
}

fn failed(program: &str, why: impl std::fmt::Display) -> CredentialError {
    CredentialError::Helper {
        program: Line(program).to_string(),
        why: why.to_string(),
    }
}

pub(super) async fn query(
    program: &str,
    server: &str,
    time: Duration,
) -> Result<Option<Credential>, CredentialError> {
    let failed = |why: String| failed(program, why);
    let asked = timeout(time, run(program, server)).await;
    let (is_success, answer) = asked
        .map_err(|_| failed(format!("no answer within {} s", time.as_secs_f64())))?
        .map_err(|error| failed(error.to_string()))?;
    if !is_success {
        return match answer.trim_ascii() {
            UNKNOWN => Ok(None),
            // The helper's output may contain secrets, so it is not part of the error.
            _ => Err(failed(format!("it does not give what it has for {server}"))),
        };
    }
    let answer: Answer = serde_json::from_slice(&answer)
        .map_err(|_| failed("its answer is none of a helper's".to_owned()))?;
    Ok(Some(match answer.username.as_str() {
        TOKEN_USER => Credential::IdentityToken(answer.secret),
        _ => Credential::Password {
            user: answer.username,
            password: answer.secret,
        },
    }))
}

/// Runs a helper. The process is killed if the future is dropped.
async fn run(program: &str, server: &str) -> io::Result<(bool, Vec<u8>)> {
    let mut child = Command::new(program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        match input.write_all(server.as_bytes()).await {
            // The helper may answer without reading its input.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
            _ => {}
        }
    }
    let mut answer = Vec::new();
    if let Some(output) = child.stdout.take() {
        let mut output = output.take(ANSWER_MAX + 1);
        output.read_to_end(&mut answer).await?;
    }
    if answer.len() as u64 > ANSWER_MAX {
        return Err(io::Error::other("its answer is too long"));
    }
    Ok((child.wait().await?.success(), answer))
}
