//! The client's requests about secrets of functions.

use bytes::Bytes;
use http::Method;

use super::{Client, ClientError};
use crate::{FunctionName, SecretInfo, SecretName, query};

impl Client {
    /// Lists the secrets of one function or of all: their names, and when they were set.
    ///
    /// # Errors
    /// Returns an error if no node answers or the node cannot read the secrets.
    pub async fn secrets(
        &self,
        function: Option<&FunctionName>,
    ) -> Result<Vec<SecretInfo>, ClientError> {
        let path = match function {
            Some(function) => format!("secrets/{function}"),
            None => "secrets".to_owned(),
        };
        self.get(&path).await
    }

    /// Sets a secret of a function, which need not exist yet. Returns when the secret is on disk.
    /// Requests that start afterwards see it.
    ///
    /// # Errors
    /// Returns an error if no node answers, or [`ClientError::Refused`] if the value is not text,
    /// is too long, or is more than the function may have.
    pub async fn set_secret(
        &self,
        function: &FunctionName,
        name: &SecretName,
        value: Bytes,
    ) -> Result<(), ClientError> {
        self.change(Method::PUT, &of_secret(function, name), value)
            .await
    }

    /// Removes a secret. Returns when the removal is on disk.
    ///
    /// # Errors
    /// Returns an error if no node answers or there is no such secret.
    pub async fn remove_secret(
        &self,
        function: &FunctionName,
        name: &SecretName,
    ) -> Result<(), ClientError> {
        let path = of_secret(function, name);
        self.change(Method::DELETE, &path, Bytes::new()).await
    }
}

fn of_secret(function: &FunctionName, name: &SecretName) -> String {
    let name = query::write([("name", name.as_str())]);
    format!("secrets/{function}/value?{name}")
}
