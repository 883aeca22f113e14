//! The key-value stores of functions, as the operator sees them.

use std::collections::BTreeMap;

use bytes::Bytes;
use faasw_abi::store::VALUE_MAX;
use faasw_client::{STORE_PAGE, Store, StoreInfo, StoreKeys};

use super::Node;
use crate::services::key_value::{Change, OPERATOR, Start, StoreError, namespace_of, store_of};

impl Node {
    /// Lists the key-value stores that have any keys, functions' own stores before shared ones.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub async fn stores(&self) -> Result<Vec<StoreInfo>, StoreError> {
        let uses = self.parts.storage.key_value.uses().await?;
        let infos = uses.into_iter().filter_map(|uses| {
            Some(StoreInfo {
                store: store_of(&uses.namespace)?,
                keys: uses.keys,
                bytes: uses.bytes,
            })
        });
        Ok(infos.collect())
    }

    /// Returns at most [`STORE_PAGE`] keys of a store in order, starting behind `after`, which may
    /// be empty.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub async fn store_keys(&self, store: &Store, after: &str) -> Result<StoreKeys, StoreError> {
        let (namespace, start) = (namespace_of(store), Start::Behind(after.into()));
        let stores = &self.parts.storage.key_value;
        let page = stores.keys(OPERATOR, namespace, start, STORE_PAGE).await?;
        let text = |key: &Vec<u8>| String::from_utf8_lossy(key).into_owned();
        Ok(StoreKeys {
            keys: page.0.iter().map(text).collect(),
            has_more: page.1,
        })
    }

    /// Returns the value of a key, if there is one.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub async fn store_value(
        &self,
        store: &Store,
        key: &str,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let (namespace, keys) = (namespace_of(store), vec![key.as_bytes().to_vec()]);
        let stores = &self.parts.storage.key_value;
        let values = stores.get(OPERATOR, namespace, keys, VALUE_MAX).await?;
        Ok(values.into_iter().next().flatten())
    }

    /// Sets or removes a key. Returns once the change is on disk, or the key-value server has made
    /// it.
    ///
    /// # Errors
    /// Returns an error if the store is full or cannot be written.
    pub async fn set_store_value(
        &self,
        store: &Store,
        key: &str,
        value: Option<Bytes>,
    ) -> Result<(), StoreError> {
        let pair = (key.as_bytes().to_vec(), value.map(Vec::from));
        let change = Change::Put(BTreeMap::from([pair]));
        let (namespace, quota) = (namespace_of(store), self.parts.versions.store_quota());
        let stores = &self.parts.storage.key_value;
        let changed = stores.change(OPERATOR, namespace, quota, change);
        changed.await.map(drop)
    }
}
