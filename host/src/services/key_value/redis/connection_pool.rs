//! The connections to the server, and the turns of callers.
//!
//! [`MAX_CONNECTIONS`] commands are under way at the same time, each on a connection of its own.
//! Other callers wait for their turn, round robin between functions, before their command is built.
//! So a function with many commands delays only itself, and its waiting commands take no memory. It
//! has at most a quarter of the turns, so that other functions wait behind few of its commands.
//!
//! A command has a time limit from its request for a turn to its answer. A third of that time is
//! kept for the command itself. If a connection breaks, a command that only reads is sent once more
//! within the same time. A change is never repeated, because it may have been made.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ::redis::{Value, cmd};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::{
    super::{StoreError, failure_log::FailureLog, fair, fair::FairPermits},
    connection::{Command, CommandError, RedisConnection, tls},
    server::KeyValueServer,
};

/// The number of connections, and so of commands under way at the same time. The server executes
/// them one after another.
const MAX_CONNECTIONS: usize = 16;

/// The number of commands of one function under way at the same time.
const MAX_CONNECTIONS_EACH: usize = 4;

/// A connection that was silent for longer is tested before a change is sent over it. The server
/// may have closed it unnoticed, and then it would be unknown whether the change was made.
const SILENT: Duration = Duration::from_secs(1);

/// Time limit of that test.
const PING: Duration = Duration::from_secs(1);

pub(super) struct ConnectionPool {
    pub(super) server: KeyValueServer,
    tls: Option<TlsConnector>,
    /// Time limit of a command.
    time: Duration,
    turns: Arc<FairPermits>,
    idle: Mutex<Vec<RedisConnection>>,
    failure_log: FailureLog,
}

impl fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionPool")
            .field("server", &self.server)
            .field("turns", &self.turns)
            .finish_non_exhaustive()
    }
}

/// A caller's turn to send commands.
#[derive(Debug)]
pub(super) struct CommandTurn<'a> {
    links: &'a ConnectionPool,
    until: Instant,
    _turn: fair::FairPermit,
}

impl ConnectionPool {
    /// Creates the links without any connection. A command has this time, from its request for a
    /// turn to its answer.
    pub(super) fn new(server: KeyValueServer, time: Duration) -> Result<Self, StoreError> {
        let tls = tls(&server).map_err(|why| refused(&server, why))?;
        Ok(Self {
            server,
            tls,
            time,
            turns: FairPermits::new(MAX_CONNECTIONS, MAX_CONNECTIONS_EACH),
            idle: Mutex::default(),
            failure_log: FailureLog::default(),
        })
    }

    /// Waits for a turn of `owner`.
    pub(super) async fn turn(&self, owner: &str) -> Result<CommandTurn<'_>, StoreError> {
        let now = Instant::now();
        // A command that starts with too little time left for its answer would leave the result of
        // a change unknown, and would take time from others.
        match timeout_at(now + self.time * 2 / 3, self.turns.take(owner)).await {
            Ok(Some(turn)) => Ok(CommandTurn {
                links: self,
                until: now + self.time,
                _turn: turn,
            }),
            Ok(None) => Err(StoreError::Interrupted),
            Err(_) => Err(self.log_error(self.away("no connection to it became free in time"))),
        }
    }

    /// Returns the error for a server that cannot be used for this reason, and logs it.
    pub(super) fn refused(&self, why: impl Into<String>) -> StoreError {
        self.log_error(refused(&self.server, why))
    }

    fn away(&self, why: impl Into<String>) -> StoreError {
        StoreError::Away {
            server: self.server.to_string(),
            why: why.into(),
        }
    }

    fn log_error(&self, error: StoreError) -> StoreError {
        self.failure_log.log_failure(&error);
        error
    }

    /// Returns a connection that works, as far as that can be known.
    async fn link(&self) -> Result<RedisConnection, CommandError> {
        loop {
            let idle = self.idle().pop();
            let Some(mut link) = idle else {
                return RedisConnection::open(&self.server, self.tls.as_ref()).await;
            };
            if !link.is_open() {
                continue;
            }
            if link.idle() < SILENT {
                return Ok(link);
            }
            match timeout(PING, link.send(&Command::Read(cmd("PING")))).await {
                Ok(Ok(_)) => return Ok(link),
                // For example, the server may be loading its data. It would answer the same on
                // another connection.
                Ok(Err(refused @ (CommandError::Refused(_) | CommandError::Demoted(_)))) => {
                    return Err(refused);
                }
                // The other connections have been idle at least as long.
                Ok(Err(CommandError::Broken(_))) | Err(_) => self.idle().clear(),
            }
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<RedisConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommandTurn<'_> {
    /// Sends a command and waits for the answer. Dropping the future closes the connection that
    /// carries the command.
    pub(super) async fn send(&self, command: &Command<'_>) -> Result<Value, StoreError> {
        let mut again = command.reads();
        loop {
            let link = timeout_at(self.until, self.links.link()).await;
            let mut link = match link {
                Ok(Ok(link)) => link,
                Ok(Err(CommandError::Refused(why) | CommandError::Demoted(why))) => {
                    return Err(self.links.refused(why));
                }
                Ok(Err(CommandError::Broken(why))) => {
                    return Err(self.links.log_error(self.links.away(why)));
                }
                Err(_) => return Err(self.links.log_error(self.late())),
            };
            match timeout_at(self.until, link.send(command)).await {
                Ok(Ok(value)) => {
                    self.links.idle().push(link);
                    self.links.failure_log.log_recovery();
                    return Ok(value);
                }
                Ok(Err(CommandError::Refused(why))) => {
                    self.links.idle().push(link);
                    return Err(self.links.refused(why));
                }
                Ok(Err(CommandError::Demoted(why))) => {
                    self.links.idle().clear();
                    return Err(self.links.refused(why));
                }
                // The other connections lead to the same server and are probably broken, too.
                Ok(Err(CommandError::Broken(why))) => {
                    self.links.idle().clear();
                    if again {
                        again = false
                    } else {
                        return Err(self.lost(command, self.links.away(why)));
                    }
                }
                Err(_) => {
                    self.links.idle().clear();
                    return Err(self.lost(command, self.late()));
                }
            }
        }
    }

    /// Sends a command that the server may well reject. A failure is not logged and returns `None`.
    pub(super) async fn send_unlogged(&self, command: &Command<'_>) -> Option<Value> {
        let answer = async {
            let mut link = self.links.link().await.ok()?;
            let value = link.send(command).await;
            self.links.idle().push(link);
            value.ok()
        };
        timeout_at(self.until, answer).await.ok()?
    }

    fn late(&self) -> StoreError {
        self.links.away(format!(
            "no answer came within {} s",
            self.links.time.as_secs_f64()
        ))
    }

    /// Returns the error of a command that was sent but not answered. The operator reads the reason
    /// in the log; the caller learns whether a change may have been made.
    fn lost(&self, command: &Command<'_>, why: StoreError) -> StoreError {
        let why = self.links.log_error(why);
        if command.reads() {
            why
        } else {
            StoreError::Unknown
        }
    }
}

fn refused(server: &KeyValueServer, why: impl Into<String>) -> StoreError {
    StoreError::Refused {
        server: server.to_string(),
        why: why.into(),
    }
}
