//! Applies one change of a namespace within the writer's transaction, completely or not at all.

use std::collections::BTreeMap;

use redb::{ReadableTable as _, TableDefinition, WriteTransaction};

use super::super::{Change, Changed, Quota, StoreError};

/// Namespace and key → value.
pub(super) const PAIRS: TableDefinition<'_, (&str, &[u8]), &[u8]> = TableDefinition::new("pairs");
/// Namespace → its number of keys, and the bytes of its keys and values.
pub(super) const USES: TableDefinition<'_, &str, (u64, u64)> = TableDefinition::new("uses");
/// The number of commits, by which a failed commit is distinguished from one that is in the file.
pub(super) const COMMITS: TableDefinition<'_, &str, u64> = TableDefinition::new("commits");
/// The one key of [`COMMITS`].
pub(super) const LAST: &str = "last";

/// Applies a change. The inner result is an error if the change is rejected: nothing of it was
/// done, so other changes of the same transaction can be committed.
///
/// # Errors
/// Returns an error of the database, after which the store must be closed.
pub(super) fn apply(
    transaction: &WriteTransaction,
    namespace: &str,
    quota: Quota,
    change: Change,
) -> Result<Result<Changed, StoreError>, redb::Error> {
    let (pairs, changed) = match change {
        Change::Put(pairs) => (pairs, Changed::Done),
        Change::Increment(key, delta) => {
            let before = match value(transaction, namespace, &key)? {
                None => Some(0),
                Some(text) => number(&text),
            };
            let Some(number) = before.and_then(|before| before.checked_add(delta)) else {
                return Ok(Err(StoreError::NoNumber));
            };
            let text = number.to_string().into_bytes();
            (BTreeMap::from([(key, Some(text))]), Changed::Number(number))
        }
        Change::Swap {
            key,
            seen,
            value: new,
        } => {
            let now = value(transaction, namespace, &key)?;
            if now != seen {
                return Ok(Ok(Changed::Stale(now)));
            }
            (BTreeMap::from([(key, Some(new))]), Changed::Done)
        }
    };
    let done = put(transaction, namespace, quota, &pairs)?;
    Ok(done.map(|()| changed))
}

/// The largest length of a number in bytes, leading zeros included.
const NUMBER_BYTES: usize = 64;

/// Parses a stored number: decimal digits, as in other stores.
fn number(text: &[u8]) -> Option<i64> {
    let text = Some(text).filter(|text| text.len() <= NUMBER_BYTES)?;
    str::from_utf8(text).ok()?.parse().ok()
}

fn value(
    transaction: &WriteTransaction,
    namespace: &str,
    key: &[u8],
) -> Result<Option<Vec<u8>>, redb::Error> {
    let pairs = transaction.open_table(PAIRS)?;
    let value = pairs.get((namespace, key))?;
    Ok(value.map(|value| value.value().to_vec()))
}

fn put(
    transaction: &WriteTransaction,
    namespace: &str,
    quota: Quota,
    changes: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
) -> Result<Result<(), StoreError>, redb::Error> {
    let mut pairs = transaction.open_table(PAIRS)?;
    let mut uses = transaction.open_table(USES)?;
    let before = uses.get(namespace)?;
    let (had_keys, had_bytes) = before.map_or((0, 0), |uses| uses.value());
    let (mut keys, mut bytes) = (had_keys, had_bytes);
    // All sizes are counted before the first write, so that a change that does not fit leaves
    // nothing behind.
    for (key, value) in changes {
        if let Some(old) = pairs.get((namespace, key.as_slice()))? {
            keys = keys.saturating_sub(1);
            bytes = bytes.saturating_sub((key.len() + old.value().len()) as u64);
        }
        if let Some(value) = value {
            keys += 1;
            bytes += (key.len() + value.len()) as u64;
        }
    }
    // A change that makes the namespace smaller is never rejected, even if the quota was lowered.
    if keys > quota.keys && keys > had_keys {
        let (what, most) = ("keys", quota.keys);
        return Ok(Err(StoreError::Full { what, most }));
    }
    if bytes > quota.bytes && bytes > had_bytes {
        let (what, most) = ("bytes", quota.bytes);
        return Ok(Err(StoreError::Full { what, most }));
    }
    for (key, value) in changes {
        let key = (namespace, key.as_slice());
        match value {
            Some(value) => drop(pairs.insert(key, value.as_slice())?),
            None => drop(pairs.remove(key)?),
        }
    }
    match keys {
        0 => drop(uses.remove(namespace)?),
        _ => drop(uses.insert(namespace, (keys, bytes))?),
    }
    Ok(Ok(()))
}
