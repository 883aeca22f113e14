//! The key-value part of the admin API.

use std::time::Duration;

use bytes::Bytes;
use faasw_abi::store::KEY_MAX;
use faasw_client::{Problem, STORE_VALUE_BYTES, Store, query::read_parameter};
use http::{HeaderValue, Response, StatusCode, Uri, header};

use super::api::{Api, HandlerResult, bad_query, json, no_content};
use crate::{
    failure::{Audience, Failure},
    message::{self, Body, RequestRejection},
    server::RequestBodyStream,
    services::key_value::StoreError,
};

/// Maximum time for a client to send a value.
const VALUE_TIME: Duration = Duration::from_secs(60);

impl Api {
    pub(super) async fn stores(&self) -> HandlerResult {
        json(&self.node.stores().await.map_err(problem)?)
    }

    pub(super) async fn store_keys(&self, kind: &str, name: &str, uri: &Uri) -> HandlerResult {
        let store = Store::of_path(kind, name).map_err(bad_query)?;
        let after: Option<String> = read_parameter(uri.query(), "after").map_err(bad_query)?;
        let after = after.unwrap_or_default();
        let keys = self.node.store_keys(&store, &after).await;
        json(&keys.map_err(problem)?)
    }

    /// Returns the value's bytes, or 204 if the key does not exist.
    pub(super) async fn store_value(&self, kind: &str, name: &str, uri: &Uri) -> HandlerResult {
        let (store, key) = of_key(kind, name, uri)?;
        let value = self.node.store_value(&store, &key).await.map_err(problem)?;
        let Some(value) = value else {
            return Ok(no_content());
        };
        let mut response = Response::new(Body::from(value));
        let bytes = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, bytes);
        Ok(response)
    }

    pub(super) async fn set_store_value(
        &self,
        kind: &str,
        name: &str,
        uri: &Uri,
        body: RequestBodyStream,
    ) -> HandlerResult {
        let (store, key) = of_key(kind, name, uri)?;
        if let Store::Function(function) = &store
            && self.node.parts.functions.get(function.as_str()).is_none()
        {
            // The store of a removed function may still be read and emptied, but not written.
            return Err(
                Failure::UnknownFunction(function.as_str().into()).problem(Audience::Operator)
            );
        }
        let value = message::collect(body, STORE_VALUE_BYTES, VALUE_TIME, false).await;
        let value: Bytes = value.map_err(|unfit| match unfit {
            RequestRejection::BodyTooLarge(limit) => Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "value-too-large",
                "The value is too large",
                format!("it is larger than the limit of {limit} bytes"),
            ),
            other => Failure::from(other).problem(Audience::Operator),
        })?;
        let set = self.node.set_store_value(&store, &key, Some(value));
        set.await.map_err(problem)?;
        Ok(no_content())
    }

    pub(super) async fn remove_store_key(
        &self,
        kind: &str,
        name: &str,
        uri: &Uri,
    ) -> HandlerResult {
        let (store, key) = of_key(kind, name, uri)?;
        let removed = self.node.set_store_value(&store, &key, None);
        removed.await.map_err(problem)?;
        Ok(no_content())
    }
}

fn of_key(kind: &str, name: &str, uri: &Uri) -> Result<(Store, String), Problem> {
    let store = Store::of_path(kind, name).map_err(bad_query)?;
    let key: Option<String> = read_parameter(uri.query(), "key").map_err(bad_query)?;
    let key = key.unwrap_or_default();
    match key.len() {
        1..=KEY_MAX => Ok((store, key)),
        length => Err(bad_query(format!(
            "a key has 1 to {KEY_MAX} bytes, not {length}"
        ))),
    }
}

/// Converts an error to a problem. The client is the operator, so nothing is withheld.
fn problem(error: StoreError) -> Problem {
    let detail = error.to_string();
    match error {
        StoreError::Full { .. } => Problem::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "store-full",
            "The store is full",
            detail,
        ),
        StoreError::NoSpace => Problem::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "no-space",
            "No space is left",
            detail,
        ),
        StoreError::Away { .. } => Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "store-away",
            "The key-value server cannot be reached",
            detail,
        ),
        _ => Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "platform-failure",
            "The node failed",
            detail,
        ),
    }
}
