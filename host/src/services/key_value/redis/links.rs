//! The connections to the server, and the turns of those who ask.
//!
//! [`LINKS`] commands are under way at once, each on a connection of its own; others wait for their
//! turn, functions in turn, with nothing made of what they ask yet. So a function that asks for
//! much holds up itself, and takes no memory; of the turns it has a quarter at most, so that others
//! wait behind few of its commands. From when it wants a turn to its answer a command has so much
//! time altogether, whatever it waits for; a third of it is kept for the command itself. What was
//! asked on a connection that breaks is asked once more if it only reads, within the same time; a
//! change never is: it may be there.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ::redis::{Value, cmd};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::{
    super::{StoreError, fair, fair::Turns, told::Told},
    link::{Command, Link, Unanswered, tls},
    server::KeyValueServer,
};

/// Connections, and so commands under way at once. The server does one after the other.
const LINKS: usize = 16;

/// Commands of one function under way at once.
const LINKS_EACH: usize = 4;

/// A connection that was silent for longer is asked whether it works before a change is trusted to
/// it: whoever closed it may not have been heard, and whether the change was made would not be
/// known.
const SILENT: Duration = Duration::from_secs(1);

/// Time for that.
const PING: Duration = Duration::from_secs(1);

/// All connections.
pub(super) struct Links {
    pub(super) server: KeyValueServer,
    tls: Option<TlsConnector>,
    /// Time for a command.
    time: Duration,
    turns: Arc<Turns>,
    idle: Mutex<Vec<Link>>,
    told: Told,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links")
            .field("server", &self.server)
            .field("turns", &self.turns)
            .finish_non_exhaustive()
    }
}

/// Somebody's turn to ask.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    links: &'a Links,
    until: Instant,
    _turn: fair::Turn,
}

impl Links {
    /// None is made yet. A command has this time, from when it is wanted to its answer.
    pub(super) fn new(server: KeyValueServer, time: Duration) -> Result<Self, StoreError> {
        let tls = tls(&server).map_err(|why| refused(&server, why))?;
        Ok(Self {
            server,
            tls,
            time,
            turns: Turns::new(LINKS, LINKS_EACH),
            idle: Mutex::default(),
            told: Told::default(),
        })
    }

    /// Waits for a turn of `owner` to ask.
    pub(super) async fn turn(&self, owner: &str) -> Result<Turn<'_>, StoreError> {
        let now = Instant::now();
        // Whoever begins with too little time left for an answer learns nothing of a change, and
        // takes others' time.
        match timeout_at(now + self.time * 2 / 3, self.turns.take(owner)).await {
            Ok(Some(turn)) => Ok(Turn {
                links: self,
                until: now + self.time,
                _turn: turn,
            }),
            Ok(None) => Err(StoreError::Interrupted),
            Err(_) => Err(self.told(self.away("others wait for answers, too"))),
        }
    }

    /// What the server has said cannot be.
    pub(super) fn refused(&self, why: impl Into<String>) -> StoreError {
        self.told(refused(&self.server, why))
    }

    fn away(&self, why: impl Into<String>) -> StoreError {
        StoreError::Away {
            server: self.server.to_string(),
            why: why.into(),
        }
    }

    fn told(&self, error: StoreError) -> StoreError {
        self.told.failed(&error);
        error
    }

    /// A connection that works, as far as that can be known.
    async fn link(&self) -> Result<Link, Unanswered> {
        loop {
            let idle = self.idle().pop();
            let Some(mut link) = idle else {
                return Link::open(&self.server, self.tls.as_ref()).await;
            };
            if !link.is_open() {
                continue;
            }
            if link.idle() < SILENT {
                return Ok(link);
            }
            match timeout(PING, link.ask(&Command::Read(cmd("PING")))).await {
                Ok(Ok(_)) => return Ok(link),
                // Loading its data, say: another connection would hear the same.
                Ok(Err(refused @ (Unanswered::Refused(_) | Unanswered::Demoted(_)))) => {
                    return Err(refused);
                }
                // The others are as old, or older.
                Ok(Err(Unanswered::Broken(_))) | Err(_) => self.idle().clear(),
            }
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Asks, and waits for the answer. Dropping the future closes the connection that it was asked
    /// on.
    pub(super) async fn ask(&self, command: &Command<'_>) -> Result<Value, StoreError> {
        let mut again = command.reads();
        loop {
            let link = timeout_at(self.until, self.links.link()).await;
            let mut link = match link {
                Ok(Ok(link)) => link,
                Ok(Err(Unanswered::Refused(why) | Unanswered::Demoted(why))) => {
                    return Err(self.links.refused(why));
                }
                Ok(Err(Unanswered::Broken(why))) => return Err(self.failed(self.links.away(why))),
                Err(_) => return Err(self.failed(self.late())),
            };
            match timeout_at(self.until, link.ask(command)).await {
                Ok(Ok(value)) => {
                    self.links.idle().push(link);
                    self.links.told.worked();
                    return Ok(value);
                }
                Ok(Err(Unanswered::Refused(why))) => {
                    self.links.idle().push(link);
                    return Err(self.links.refused(why));
                }
                Ok(Err(Unanswered::Demoted(why))) => {
                    self.links.idle().clear();
                    return Err(self.links.refused(why));
                }
                // Others are to the same server, and would hear no more.
                Ok(Err(Unanswered::Broken(why))) => {
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

    /// Asks for what the server may well refuse: then there is nothing, and nobody is told.
    pub(super) async fn ask_quietly(&self, command: &Command<'_>) -> Option<Value> {
        let asked = async {
            let mut link = self.links.link().await.ok()?;
            let answer = link.ask(command).await;
            self.links.idle().push(link);
            answer.ok()
        };
        timeout_at(self.until, asked).await.ok()?
    }

    fn late(&self) -> StoreError {
        self.links.away(format!(
            "no answer came within {} s",
            self.links.time.as_secs_f64()
        ))
    }

    fn failed(&self, error: StoreError) -> StoreError {
        self.links.told(error)
    }

    /// Something was asked, and nobody knows what came of it. The operator hears why, whoever asked
    /// what that means.
    fn lost(&self, command: &Command<'_>, why: StoreError) -> StoreError {
        let why = self.links.told(why);
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
