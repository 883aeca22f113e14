//! Stores on a Redis server, which other nodes may use at the same time.
//!
//! A namespace is three keys of the server: a hash of its keys and values, a sorted set of its
//! keys, and its number of bytes. The sorted set lists the keys in order. Their names contain the
//! namespace in braces, so that systems that divide keys among servers keep the three together.
//! Each change is one script ([`scripts`]) and each read is one command. So no caller sees a
//! partial change, and the node keeps no state between two commands.
//!
//! The server belongs to the operator and is trusted with all functions' data. Its answers are
//! limited to the largest size of an answer ([`bounded`]) and checked for their form ([`replies`]).
//!
//! - [`server`]: the server's address and how connections are made. [`connection`]: a connection.
//!   [`connection_pool`]: all connections, the turns of callers and the time limits.
//! - [`check`]: the requirements for a server.

mod bounded;
mod check;
mod connection;
mod connection_pool;
mod replies;
mod scripts;
mod server;
#[cfg(test)]
mod tests;

use std::time::Duration;

use ::redis::{ScriptInvocation, cmd};
use tokio::time::timeout;

use super::{Change, Changed, NamespaceUsage, OPERATOR, Page, Quota, Start, StoreError, Values};
use connection::Command;
use connection_pool::ConnectionPool;
use replies::{Outcome, UnexpectedReply};
use scripts::SCRIPTS;
pub use server::{Dial, Dialing, KeyValueServer, KeyValueServerError, ServerAddress};

/// The prefix of the names of all keys.
const BEGIN: &str = "faasw:kv:{";

/// The suffix of the name of a namespace's hash.
const VALUES: &str = "}:values";

/// How many of the server's keys one step of a search reads.
const STEP: usize = 1_000;

/// Time limit of a command, from its request for a turn to its answer.
const ANSWER: Duration = Duration::from_secs(3);

/// Time limit of the search for all namespaces among the server's keys.
const SEARCH: Duration = Duration::from_secs(15);

/// The stores on a server.
#[derive(Debug)]
pub(crate) struct Redis {
    links: ConnectionPool,
}

/// The names of a namespace's keys on the server.
#[derive(Debug)]
struct Names {
    values: String,
    keys: String,
    bytes: String,
}

impl Redis {
    /// Connects to the server and checks that it is fit for use.
    pub(super) async fn connect(server: KeyValueServer) -> Result<Self, StoreError> {
        Self::connect_with(server, ANSWER).await
    }

    /// Connects with this time limit for a command.
    async fn connect_with(server: KeyValueServer, time: Duration) -> Result<Self, StoreError> {
        let links = ConnectionPool::new(server, time)?;
        links.check().await?;
        Ok(Self { links })
    }

    fn names(namespace: &str) -> Names {
        let name = |end| [BEGIN, namespace, end].concat();
        Names {
            values: name(VALUES),
            keys: name("}:keys"),
            bytes: name("}:bytes"),
        }
    }

    pub(super) async fn get(
        &self,
        owner: &str,
        namespace: &str,
        keys: &[Vec<u8>],
        most: usize,
    ) -> Result<Values, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let turn = self.links.turn(owner).await?;
        let mut script = SCRIPTS.get.key(Self::names(namespace).values);
        script.arg(most).arg(keys);
        let answer = turn.send(&Command::ReadBy(script)).await?;
        let values = self.accept(replies::values(answer, keys.len()))?;
        values.ok_or(StoreError::TooMuch(most))
    }

    pub(super) async fn exists(
        &self,
        owner: &str,
        namespace: &str,
        key: &[u8],
    ) -> Result<bool, StoreError> {
        let turn = self.links.turn(owner).await?;
        let mut exists = cmd("HEXISTS");
        exists.arg(Self::names(namespace).values).arg(key);
        let answer = turn.send(&Command::Read(exists)).await?;
        Ok(self.accept(replies::number(&answer))? == 1)
    }

    pub(super) async fn keys(
        &self,
        owner: &str,
        namespace: &str,
        start: &Start,
        most: usize,
    ) -> Result<Page, StoreError> {
        let passed = start.counted()?;
        let turn = self.links.turn(owner).await?;
        let mut range = cmd("ZRANGE");
        range.arg(Self::names(namespace).keys);
        match start {
            // No key is empty.
            Start::Behind(key) if key.is_empty() => range.arg("-"),
            Start::Behind(key) => range.arg([b"(", key.as_slice()].concat()),
            Start::Number(_) => range.arg(passed).arg(passed.saturating_add(most as u64)),
        };
        if let Start::Behind(_) = start {
            let limit = range.arg("+").arg("BYLEX").arg("LIMIT");
            limit.arg(0).arg(most.saturating_add(1));
        }
        let answer = turn.send(&Command::Read(range)).await?;
        self.accept(replies::page(answer, most))
    }

    pub(super) async fn uses(&self) -> Result<Vec<NamespaceUsage>, StoreError> {
        let found = timeout(SEARCH, self.search()).await;
        found.unwrap_or_else(|_| {
            let why = "it has so many keys that those of functions' stores were not found in time";
            Err(self.links.refused(why))
        })
    }

    async fn search(&self) -> Result<Vec<NamespaceUsage>, StoreError> {
        let (mut cursor, mut uses) = (b"0".to_vec(), Vec::new());
        loop {
            let turn = self.links.turn(OPERATOR).await?;
            let mut scan = cmd("SCAN");
            scan.arg(&cursor)
                .arg("MATCH")
                .arg([BEGIN, "*", VALUES].concat());
            scan.arg("COUNT").arg(STEP).arg("TYPE").arg("hash");
            let answer = turn.send(&Command::Read(scan)).await?;
            drop(turn);
            let mut items = self.accept(replies::items(answer))?.into_iter();
            let (next, found) = (items.next(), items.next());
            cursor = self.accept(replies::bytes(next.unwrap_or_default()))?;
            for name in self.accept(replies::items(found.unwrap_or_default()))? {
                let name = String::from_utf8(self.accept(replies::bytes(name))?);
                // A name that is not text is not one of faasw's.
                let Ok(name) = name else { continue };
                let namespace = name.strip_prefix(BEGIN);
                if let Some(namespace) = namespace.and_then(|name| name.strip_suffix(VALUES))
                    && let Some(of) = self.size(namespace).await?
                {
                    uses.push(of);
                }
            }
            if cursor == b"0" {
                break;
            }
        }
        uses.sort_by(|one: &NamespaceUsage, other| one.namespace.cmp(&other.namespace));
        // A search returns a key twice if the server's table has grown meanwhile.
        uses.dedup_by(|one, other| one.namespace == other.namespace);
        Ok(uses)
    }

    /// Returns the size of a namespace, or `None` if it has no keys.
    async fn size(&self, namespace: &str) -> Result<Option<NamespaceUsage>, StoreError> {
        let turn = self.links.turn(OPERATOR).await?;
        let Names { values, bytes, .. } = Self::names(namespace);
        let mut script = SCRIPTS.size.key(values);
        script.key(bytes);
        let answer = turn.send(&Command::ReadBy(script)).await?;
        let items = self.accept(replies::items(answer))?;
        let numbers = items.iter().map(replies::number);
        let numbers = self.accept(numbers.collect::<Result<Vec<_>, _>>())?;
        match *numbers.as_slice() {
            [0, _] => Ok(None),
            [keys, bytes] => Ok(Some(NamespaceUsage {
                namespace: namespace.to_owned(),
                keys,
                bytes,
            })),
            _ => self.accept(Err(UnexpectedReply)),
        }
    }

    pub(super) async fn change(
        &self,
        owner: &str,
        namespace: &str,
        quota: Quota,
        change: &Change,
    ) -> Result<Changed, StoreError> {
        let turn = self.links.turn(owner).await?;
        let command = Command::Change(script(&Self::names(namespace), quota, change));
        let answer = turn.send(&command).await?;
        match self.accept(replies::outcome(answer))? {
            Outcome::Changed(changed) => Ok(changed),
            Outcome::Keys => Err(StoreError::Full {
                what: "keys",
                most: quota.keys,
            }),
            Outcome::Bytes => Err(StoreError::Full {
                what: "bytes",
                most: quota.bytes,
            }),
            Outcome::NoNumber => Err(StoreError::NoNumber),
        }
    }

    fn accept<T>(&self, answer: Result<T, UnexpectedReply>) -> Result<T, StoreError> {
        answer.map_err(|UnexpectedReply| {
            self.links.refused(
                "it has what no node writes: did somebody else change keys that \
                 begin with faasw:kv:?",
            )
        })
    }
}

/// Returns the script for a change.
fn script(names: &Names, quota: Quota, change: &Change) -> ScriptInvocation<'static> {
    let begin = |script: &'static ::redis::Script| {
        let mut script = script.key(&names.values);
        script.key(&names.keys).key(&names.bytes);
        script.arg(quota.keys).arg(quota.bytes);
        script
    };
    match change {
        Change::Put(pairs) => {
            let set = pairs
                .iter()
                .filter_map(|(key, value)| Some((key, value.as_ref()?)));
            let count = set.clone().count();
            let mut script = match count {
                0 => begin(&SCRIPTS.remove),
                _ => begin(&SCRIPTS.put),
            };
            script.arg(count);
            for (key, value) in set {
                script.arg(key.as_slice()).arg(value.as_slice());
            }
            for (key, _) in pairs.iter().filter(|(_, value)| value.is_none()) {
                script.arg(key.as_slice());
            }
            script
        }
        Change::Increment(key, delta) => {
            let mut script = begin(&SCRIPTS.increment);
            script.arg(key.as_slice()).arg(*delta);
            script
        }
        Change::Swap { key, seen, value } => {
            let mut script = begin(&SCRIPTS.swap);
            script.arg(key.as_slice()).arg(value.as_slice());
            if let Some(seen) = seen {
                script.arg(seen.as_slice());
            }
            script
        }
    }
}
