//! The client's requests about key-value stores.

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::Empty;

use super::{
    Client, ClientError,
    exchange::{accepted, request},
};
use crate::{Store, StoreInfo, StoreKeys, query};

impl Client {
    /// Lists the key-value stores that have keys.
    ///
    /// # Errors
    /// Returns an error if no node answers or the node cannot read the stores.
    pub async fn stores(&self) -> Result<Vec<StoreInfo>, ClientError> {
        self.get("kv").await
    }

    /// Returns a page of the keys of a store, in order, that follow `after`. An empty `after`
    /// precedes all keys. A store that was never written to has no keys.
    ///
    /// # Errors
    /// Returns an error if no node answers or the node cannot read the store.
    pub async fn store_keys(&self, store: &Store, after: &str) -> Result<StoreKeys, ClientError> {
        let path = format!("{}?{}", store.path(), query::write([("after", after)]));
        self.get(&path).await
    }

    /// Returns the value of a key, or `None` if the key does not exist.
    ///
    /// # Errors
    /// Returns an error if no node answers or the node cannot read the store.
    pub async fn store_value(
        &self,
        store: &Store,
        key: &str,
    ) -> Result<Option<Bytes>, ClientError> {
        let asked = request(Method::GET, &of_key(store, key), Empty::<Bytes>::new())?;
        let response = self.send(asked).await?;
        match response.status() {
            StatusCode::NO_CONTENT => Ok(None),
            _ => accepted(response).map(Some),
        }
    }

    /// Sets a key. Returns when the value is on disk, or when the key-value server has set it.
    ///
    /// # Errors
    /// Returns an error if no node answers, or [`ClientError::Refused`] if there is no such
    /// function, its store is full, or the key or the value is too long.
    pub async fn set_store_value(
        &self,
        store: &Store,
        key: &str,
        value: Bytes,
    ) -> Result<(), ClientError> {
        self.change(Method::PUT, &of_key(store, key), value).await
    }

    /// Removes a key if it exists. Returns when the removal is on disk, or when the key-value
    /// server has made it.
    ///
    /// # Errors
    /// Returns an error if no node answers or the node cannot remove the key.
    pub async fn remove_store_key(&self, store: &Store, key: &str) -> Result<(), ClientError> {
        self.change(Method::DELETE, &of_key(store, key), Bytes::new())
            .await
    }
}

fn of_key(store: &Store, key: &str) -> String {
    format!("{}/value?{}", store.path(), query::write([("key", key)]))
}
