//! Key-value stores of functions, by the client.

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{Empty, Full};

use super::{
    Client, ClientError,
    exchange::{accepted, request},
};
use crate::{Store, StoreInfo, StoreKeys, key_value::write_parameter};

impl Client {
    /// Lists the key-value stores that have anything.
    ///
    /// # Errors
    /// When no node answers, or it cannot read them.
    pub async fn stores(&self) -> Result<Vec<StoreInfo>, ClientError> {
        self.ask(Method::GET, "kv".into(), Bytes::new()).await
    }

    /// The keys of a store in their order, behind `after`; an empty one is before all. A store that
    /// nobody has written to has none.
    ///
    /// # Errors
    /// When no node answers, or it cannot read them.
    pub async fn store_keys(&self, store: &Store, after: &str) -> Result<StoreKeys, ClientError> {
        let path = format!("{}?{}", store.path(), write_parameter("after", after));
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// The value of a key, if there is one.
    ///
    /// # Errors
    /// When no node answers, or it cannot read it.
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

    /// Sets a key; comes back when that is on disk.
    ///
    /// # Errors
    /// When no node answers, there is no such function, or its store is full; when the key or the
    /// value is too long.
    pub async fn set_store_value(
        &self,
        store: &Store,
        key: &str,
        value: Bytes,
    ) -> Result<(), ClientError> {
        let asked = request(Method::PUT, &of_key(store, key), Full::new(value))?;
        accepted(self.send(asked).await?).map(drop)
    }

    /// Removes a key, where it is there; comes back when that is on disk.
    ///
    /// # Errors
    /// When no node answers, or it cannot do it.
    pub async fn remove_store_key(&self, store: &Store, key: &str) -> Result<(), ClientError> {
        let asked = request(Method::DELETE, &of_key(store, key), Empty::<Bytes>::new())?;
        accepted(self.send(asked).await?).map(drop)
    }
}

fn of_key(store: &Store, key: &str) -> String {
    format!("{}/value?{}", store.path(), write_parameter("key", key))
}
