//! Functions' sealed secrets in the registry (`services/secrets`). A secret belongs to its
//! function, whatever the version: it may be set before the function is deployed, and it is removed
//! with the function.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use faasw_client::{FunctionName, SecretInfo, SecretName};
use faasw_pool::SECRETS_MAX;
use redb::{ReadTransaction, ReadableTable as _, TableDefinition, TableError, WriteTransaction};

use super::{
    Registry, RegistryError,
    record::FORMAT_WITH_SECRETS,
    tables::{raise_format, read_name},
};
use crate::services::secrets::TOKEN;

/// Function and name → when the secret was set, in seconds since 1970, and its sealed value. The
/// table is made by the first change.
const SECRETS: TableDefinition<'_, (&str, &str), (u64, &[u8])> = TableDefinition::new("secrets");

/// The last second since 1970 that every calendar can represent. A later time comes from a damaged
/// record.
const LATEST: u64 = 253_402_300_799;

/// Bytes that the encoding of a name and a value for a request adds to them: fewer than a seal
/// adds.
const SPELLED: usize = 8;

/// The table in one state of the registry.
type Table = redb::ReadOnlyTable<(&'static str, &'static str), (u64, &'static [u8])>;

/// Sealed values of a function, with their names.
pub(crate) type SealedSecrets = Vec<(SecretName, Vec<u8>)>;

impl Registry {
    /// Lists the secrets of all functions, or of one.
    pub(crate) fn secrets(
        &self,
        function: Option<&FunctionName>,
    ) -> Result<Vec<SecretInfo>, RegistryError> {
        let mut infos = Vec::new();
        self.each_secret(function, |info, _| infos.push(info))?;
        Ok(infos)
    }

    /// Returns one secret of each function that has any: its description and its sealed value.
    pub(crate) fn samples(&self) -> Result<Vec<(SecretInfo, Vec<u8>)>, RegistryError> {
        let mut samples: Vec<(SecretInfo, Vec<u8>)> = Vec::new();
        self.each_secret(None, |info, sealed| {
            let last = samples.last().map(|(last, _)| &last.function);
            if last != Some(&info.function) {
                samples.push((info, sealed.to_vec()));
            }
        })?;
        Ok(samples)
    }

    /// Returns the sealed values of a function's secrets.
    pub(crate) fn sealed(&self, function: &FunctionName) -> Result<SealedSecrets, RegistryError> {
        let mut sealed = Vec::new();
        self.each_secret(Some(function), |info, value| {
            sealed.push((info.name, value.to_vec()));
        })?;
        Ok(sealed)
    }

    fn each_secret(
        &self,
        function: Option<&FunctionName>,
        mut take: impl FnMut(SecretInfo, &[u8]),
    ) -> Result<(), RegistryError> {
        self.store.read(|state| {
            let Some(secrets) = table(state)? else {
                return Ok(());
            };
            let from = function.map_or("", FunctionName::as_str);
            for entry in secrets.range((from, "")..)? {
                let (key, value) = entry?;
                let ((owner, name), (set, sealed)) = (key.value(), value.value());
                if function.is_some_and(|function| function.as_str() != owner) {
                    break;
                }
                let info = SecretInfo {
                    function: read_name(owner)?,
                    name: SecretName::new(name).map_err(|error| {
                        let error = <serde_json::Error as serde::de::Error>::custom(error);
                        RegistryError::record(owner, error)
                    })?,
                    set: UNIX_EPOCH + Duration::from_secs(set.min(LATEST)),
                };
                take(info, sealed);
            }
            Ok(())
        })
    }

    /// Sets a secret, unless the function's secrets together become too large for a request.
    /// Returns whether it was set.
    pub(crate) fn set_secret(
        &self,
        function: &FunctionName,
        name: &SecretName,
        sealed: &[u8],
    ) -> Result<bool, RegistryError> {
        let _changing = self.changing();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        self.store.change(|change| {
            let mut secrets = change.open_table(SECRETS)?;
            let key = (function.as_str(), name.as_str());
            // A sealed value is longer than the value itself. The token of a bound secret may be
            // longer than the secret.
            let takes = |name: &str, sealed: &[u8]| SPELLED + name.len() + sealed.len().max(TOKEN);
            let mut bytes = takes(name.as_str(), sealed);
            for entry in secrets.range((function.as_str(), "")..)? {
                let (other, value) = entry?;
                let (owner, other) = other.value();
                if owner != function.as_str() {
                    break;
                }
                if other != name.as_str() {
                    bytes += takes(other, value.value().1);
                }
            }
            if bytes > SECRETS_MAX {
                return Ok(false);
            }
            secrets.insert(key, (now, sealed))?;
            raise_format(change, FORMAT_WITH_SECRETS)?;
            Ok(true)
        })
    }

    /// Removes a secret. Returns whether there was one.
    pub(crate) fn remove_secret(
        &self,
        function: &FunctionName,
        name: &SecretName,
    ) -> Result<bool, RegistryError> {
        let _changing = self.changing();
        self.reserve.with_space_released(|| {
            self.store.change(|change| {
                let mut secrets = change.open_table(SECRETS)?;
                let key = (function.as_str(), name.as_str());
                Ok(secrets.remove(key)?.is_some())
            })
        })
    }
}

/// Removes the secrets of a function.
pub(super) fn drop_secrets(
    change: &WriteTransaction,
    function: &FunctionName,
) -> Result<(), RegistryError> {
    let mut secrets = change.open_table(SECRETS)?;
    let mut names = Vec::new();
    for entry in secrets.range((function.as_str(), "")..)? {
        let (key, _) = entry?;
        let (owner, name) = key.value();
        if owner != function.as_str() {
            break;
        }
        names.push(name.to_owned());
    }
    for name in &names {
        secrets.remove((function.as_str(), name.as_str()))?;
    }
    Ok(())
}

fn table(state: &ReadTransaction) -> Result<Option<Table>, RegistryError> {
    match state.open_table(SECRETS) {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
