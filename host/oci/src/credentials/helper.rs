//! Helpers that keep log-ins: `docker-credential-NAME get`.
//!
//! A helper is the user's own program; it may still hang, or say more than anybody asked for.

use std::{io, process::Stdio, time::Duration};

use faasw_common::text::Line;
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::Command,
    time::timeout,
};

use super::{Credential, CredentialError};

/// How long a helper may take. Some ask their user.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Most bytes of an answer.
const ANSWER_MAX: u64 = 64 << 10;

/// What all helpers say of a registry that they know nothing of.
const UNKNOWN: &[u8] = b"credentials not found in native keychain";

/// Who a helper says that a token is of instead of a user.
const TOKEN_USER: &str = "<token>";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// Asks a helper about a registry; it may know nothing of it.
pub(super) async fn ask(name: &str, server: &str) -> Result<Option<Credential>, CredentialError> {
    // It is looked for where programs are, and nowhere that a file of settings names.
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
            // What it wrote may have what it should not.
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

/// Runs it; it ends at the latest when it is not waited for any more.
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
            // It may know without having read.
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
