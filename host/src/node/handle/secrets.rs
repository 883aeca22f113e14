//! The secrets of functions, as the operator sees them.

use faasw_client::{FunctionName, SecretInfo, SecretName};

use super::Node;
use crate::node::secrets::SecretError;

impl Node {
    /// Lists the secrets of one function or of all: their names and when they were set, never their
    /// values.
    ///
    /// # Errors
    /// Returns an error if the registry cannot be read.
    pub async fn secrets(
        &self,
        function: Option<FunctionName>,
    ) -> Result<Vec<SecretInfo>, SecretError> {
        Ok(self.parts.secrets.list(function).await?)
    }

    /// Sets a secret of a function, which need not exist yet. Returns once the sealed secret is on
    /// disk. Requests that begin later receive it if their function was deployed with its name
    /// ([`FunctionOptions::secret`](crate::FunctionOptions::secret)). The secret is removed with
    /// the function.
    ///
    /// # Errors
    /// Returns [`SecretError::TooLong`] or [`SecretError::NoText`] for an invalid value,
    /// [`SecretError::TooMany`] if the function's secrets exceed their limit, and another error if
    /// the secret cannot be sealed or stored.
    pub async fn set_secret(
        &self,
        function: &FunctionName,
        name: &SecretName,
        value: &[u8],
    ) -> Result<(), SecretError> {
        self.parts.secrets.set(function, name, value).await
    }

    /// Removes a secret of a function. Returns once the removal is on disk. Requests that begin
    /// later do not receive it.
    ///
    /// # Errors
    /// Returns [`SecretError::Unknown`] if the function has no secret of this name, and another
    /// error if the registry fails.
    pub async fn remove_secret(
        &self,
        function: &FunctionName,
        name: &SecretName,
    ) -> Result<(), SecretError> {
        self.parts.secrets.remove(function, name).await
    }
}
