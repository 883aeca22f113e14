//! Checks a server when a node starts: whether it can run the scripts, and whether it keeps what it
//! acknowledges.

use ::redis::{Value, cmd};

use super::{
    super::{OPERATOR, StoreError},
    Redis,
    connection::{Command, OF_CLUSTER},
    connection_pool::ConnectionPool,
    replies,
    scripts::SCRIPTS,
};

/// The first major version of Redis whose scripts declare flags in their first line.
const NEEDED: u64 = 7;

impl ConnectionPool {
    /// Rejects a server that cannot run the scripts. Warns in the node's log if the server is a
    /// replica, or if its settings may lose data.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        let server = self.text(&["INFO", "server"]).await?;
        let version = field(&server, "redis_version").unwrap_or("of no known version");
        let major = version
            .split('.')
            .next()
            .and_then(|major| major.parse().ok());
        if major.is_none_or(|major: u64| major < NEEDED) {
            return Err(self.refused(format!(
                "it is Redis {version}, and {NEEDED}.0 or newer is needed"
            )));
        }
        if field(&server, "redis_mode") == Some("cluster") {
            return Err(self.refused(OF_CLUSTER));
        }
        let replication = self.text(&["INFO", "replication"]).await?;
        if field(&replication, "role") == Some("slave") {
            tracing::warn!("the key-value server is a replica: functions can read but not write");
        }
        // Tests that scripts run, and that this login may run them.
        let names = Redis::names("");
        let mut probe = SCRIPTS.get.key(&names.values);
        probe.arg(0).arg("probe");
        self.turn(OPERATOR)
            .await?
            .send(&Command::ReadBy(probe))
            .await?;
        tracing::info!(server = %self.server, version, "key-value stores are on a server");
        self.warn_about_lost_data().await;
        Ok(())
    }

    /// Warns about a server that may lose data. A server that does not reveal its configuration
    /// causes no warning.
    async fn warn_about_lost_data(&self) {
        if self.setting("appendonly").await.as_deref() == Some("no") {
            tracing::warn!(
                "the key-value server has no append-only file (appendonly no): a restart may lose \
                 what functions wrote"
            );
        }
        let policy = self.setting("maxmemory-policy").await;
        if let Some(policy) = policy.filter(|policy| policy.starts_with("allkeys")) {
            tracing::warn!(
                policy,
                "the key-value server drops parts of stores when its memory is full \
                 (maxmemory-policy): use noeviction, which rejects writes instead"
            );
        }
    }

    async fn text(&self, words: &[&str]) -> Result<String, StoreError> {
        let answer = self.turn(OPERATOR).await?.send(&command(words)).await?;
        let text = replies::bytes(answer).ok().map(String::from_utf8);
        match text {
            Some(Ok(text)) => Ok(text),
            _ => Err(self.refused("its answer to INFO is not text")),
        }
    }

    async fn setting(&self, name: &str) -> Option<String> {
        let turn = self.turn(OPERATOR).await.ok()?;
        // Many operators and providers of hosted Redis disable this command.
        let answer = turn
            .send_unlogged(&command(&["CONFIG", "GET", name]))
            .await?;
        let mut items = replies::items(answer).ok()?.into_iter();
        items.next();
        match items.next()? {
            Value::BulkString(text) => String::from_utf8(text).ok(),
            _ => None,
        }
    }
}

fn command(words: &[&str]) -> Command<'static> {
    let mut words = words.iter();
    let mut command = cmd(words.next().copied().unwrap_or_default());
    for word in words {
        command.arg(*word);
    }
    Command::Read(command)
}

/// Returns a field of an `INFO` answer.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    fields
        .find(|(field, _)| *field == name)
        .map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_names() {
        let info =
            "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nx_redis_mode:cluster\r\n";
        assert_eq!(field(info, "redis_version"), Some("7.0.15"));
        assert_eq!(field(info, "redis_mode"), Some("standalone"));
        assert_eq!(field(info, "mode"), None);
    }
}
