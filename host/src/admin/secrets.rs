//! The part of the admin API for functions' secrets: it accepts values and never returns them.

use std::time::Duration;

use faasw_client::{FunctionName, Problem, SECRET_BYTES, SecretName, query::read_parameter};
use http::{StatusCode, Uri};

use super::api::{Api, HandlerResult, bad_query, json, no_content};
use crate::{
    failure::{Audience, Failure},
    message::{self, RequestRejection},
    node::SecretError,
    registry::RegistryError,
    server::RequestBodyStream,
};

/// Maximum time for a client to send a value.
const VALUE_TIME: Duration = Duration::from_secs(60);

impl Api {
    pub(super) async fn secrets(&self, function: Option<&str>) -> HandlerResult {
        let function = function.map(of_function).transpose()?;
        json(&self.node.secrets(function).await.map_err(problem)?)
    }

    pub(super) async fn set_secret(
        &self,
        function: &str,
        uri: &Uri,
        body: RequestBodyStream,
    ) -> HandlerResult {
        let (function, name) = of_secret(function, uri)?;
        let value = message::collect(body, SECRET_BYTES, VALUE_TIME, false).await;
        let value = value.map_err(|unfit| match unfit {
            RequestRejection::BodyTooLarge(_) => problem(SecretError::TooLong),
            other => Failure::from(other).problem(Audience::Operator),
        })?;
        let set = self.node.set_secret(&function, &name, &value);
        set.await.map_err(problem)?;
        Ok(no_content())
    }

    pub(super) async fn remove_secret(&self, function: &str, uri: &Uri) -> HandlerResult {
        let (function, name) = of_secret(function, uri)?;
        let removed = self.node.remove_secret(&function, &name);
        removed.await.map_err(problem)?;
        Ok(no_content())
    }
}

fn of_function(function: &str) -> Result<FunctionName, Problem> {
    FunctionName::new(function).map_err(|error| bad_query(error.to_string()))
}

fn of_secret(function: &str, uri: &Uri) -> Result<(FunctionName, SecretName), Problem> {
    let function = of_function(function)?;
    let name: Option<String> = read_parameter(uri.query(), "name").map_err(bad_query)?;
    let name = SecretName::new(name.unwrap_or_default());
    Ok((
        function,
        name.map_err(|error| bad_query(error.to_string()))?,
    ))
}

/// Converts an error to a problem. The client is the operator, so only the value is withheld.
fn problem(error: SecretError) -> Problem {
    let detail = error.to_string();
    let (status, slug, title) = match &error {
        SecretError::TooLong => (
            StatusCode::PAYLOAD_TOO_LARGE,
            "value-too-large",
            "The value is too large",
        ),
        SecretError::NoText => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "bad-secret",
            "The value is not text",
        ),
        SecretError::TooMany => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "too-many-secrets",
            "The function has too many secrets",
        ),
        SecretError::Unknown(..) => (StatusCode::NOT_FOUND, "unknown-secret", "No such secret"),
        SecretError::Registry(RegistryError::NoSpace) => (
            StatusCode::INSUFFICIENT_STORAGE,
            "no-space",
            "No space is left",
        ),
        SecretError::Seal(_) | SecretError::Registry(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "platform-failure",
            "The node failed",
        ),
    };
    Problem::new(status, slug, title, detail)
}
