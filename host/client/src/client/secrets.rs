//! Secrets of functions, by the client.

use bytes::Bytes;
use http::Method;
use http_body_util::{Empty, Full};

use super::{
    Client, ClientError,
    exchange::{accepted, request},
};
use crate::{FunctionName, SecretInfo, SecretName, key_value::write_parameter};

impl Client {
    /// Lists the secrets of a function, or of all: what they are called, and when they were set.
    ///
    /// # Errors
    /// When no node answers, or it cannot read them.
    pub async fn secrets(
        &self,
        function: Option<&FunctionName>,
    ) -> Result<Vec<SecretInfo>, ClientError> {
        let path = match function {
            Some(function) => format!("secrets/{function}"),
            None => "secrets".to_owned(),
        };
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// Sets a secret of a function, which need not be there yet; comes back when that is on disk.
    /// Requests that begin after that have it.
    ///
    /// # Errors
    /// When no node answers, or it refuses the value: not text, too long, or more than its function
    /// can have.
    pub async fn set_secret(
        &self,
        function: &FunctionName,
        name: &SecretName,
        value: Bytes,
    ) -> Result<(), ClientError> {
        let asked = request(Method::PUT, &of_secret(function, name), Full::new(value))?;
        accepted(self.send(asked).await?).map(drop)
    }

    /// Removes a secret; comes back when that is on disk.
    ///
    /// # Errors
    /// When no node answers, or there is no such secret.
    pub async fn remove_secret(
        &self,
        function: &FunctionName,
        name: &SecretName,
    ) -> Result<(), ClientError> {
        let path = of_secret(function, name);
        let asked = request(Method::DELETE, &path, Empty::<Bytes>::new())?;
        accepted(self.send(asked).await?).map(drop)
    }
}

fn of_secret(function: &FunctionName, name: &SecretName) -> String {
    let name = write_parameter("name", name.as_str());
    format!("secrets/{function}/value?{name}")
}
