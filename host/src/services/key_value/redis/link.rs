//! A connection to the server: logged in, and on its database. One command at a time goes over it.

use std::{
    io,
    net::TcpStream as BlockingTcp,
    os::unix::net::UnixStream as BlockingUnix,
    sync::Arc,
    time::{Duration, Instant},
};

use ::redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, RedisError, RedisResult, ScriptInvocation,
    ServerErrorKind, Value, aio::MultiplexedConnection, cmd,
};
use faasw_abi::store::RECORD_MAX;
use faasw_common::text::Line;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpStream, UnixStream},
    task::JoinHandle,
};
use tokio_rustls::TlsConnector;

use super::{
    bounded::{Allowance, Bounded, Duplex},
    server::{KeyValueServer, ServerAddress},
};

/// Most bytes of an answer: as much as a record, and what the protocol puts round each of its
/// items.
const ANSWER_MAX: usize = RECORD_MAX + (64 << 10);

/// A server that has gone without a word is noticed after so long, and as long again.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// What is asked.
pub(super) enum Command<'a> {
    /// Something that reads, and may be asked again.
    Read(Cmd),
    /// A script that reads.
    ReadBy(ScriptInvocation<'a>),
    /// A script that writes, which is not to run twice.
    Change(ScriptInvocation<'a>),
}

impl Command<'_> {
    pub(super) fn reads(&self) -> bool {
        !matches!(self, Self::Change(_))
    }

    async fn ask(&self, connection: &mut MultiplexedConnection) -> RedisResult<Value> {
        match self {
            Self::Read(command) => command.query_async(connection).await,
            // Where the server does not know it, it is sent and asked for again; nothing was done
            // by then.
            Self::ReadBy(script) | Self::Change(script) => script.invoke_async(connection).await,
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// The server has refused, and this is what it says. The connection is good.
    Refused(String),
    /// The same by a server that has become a replica, or one of a cluster: behind its name there
    /// may be another one by now.
    Demoted(String),
    /// The connection is of no use any more.
    Broken(String),
}

impl From<RedisError> for Unanswered {
    fn from(error: RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => {
                Self::Demoted(words_of(&error))
            }
            ErrorKind::Server(
                ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::CrossSlot,
            ) => Self::Demoted(format!(
                "{} ({})",
                super::check::OF_CLUSTER,
                words_of(&error)
            )),
            ErrorKind::Server(_) | ErrorKind::Extension => Self::Refused(words_of(&error)),
            ErrorKind::AuthenticationFailed => {
                Self::Refused("it lets nobody in: are user and password right?".to_owned())
            }
            _ => Self::Broken(Line(error).to_string()),
        }
    }
}

/// What a server says, shortened. It knows keys, which are functions' text.
fn words_of(error: &RedisError) -> String {
    let (code, detail) = (error.code().unwrap_or("ERR"), error.detail());
    let words: String = format!("{code} {}", detail.unwrap_or_default())
        .chars()
        .take(200)
        .collect();
    Line(words.trim_end()).to_string()
}

/// TLS to a server: with the usual authorities, and those of the operator.
pub(super) fn tls(server: &KeyValueServer) -> Result<Option<TlsConnector>, String> {
    if server.tls_name().is_none() {
        return Ok(None);
    }
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    for authority in &server.authorities {
        let added = roots.add(authority.clone());
        added.map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    Ok(Some(TlsConnector::from(Arc::new(config))))
}

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    connection: MultiplexedConnection,
    allowance: Allowance,
    /// Moves what is written and read. It ends when the other side does.
    driver: JoinHandle<()>,
    /// When it answered last.
    answered: Instant,
}

impl Drop for Link {
    fn drop(&mut self) {
        // It would wait for answers that nobody wants any more.
        self.driver.abort();
    }
}

impl Link {
    /// Connects, logs in and hears that the server is ready: what is asked next finds it so.
    pub(super) async fn open(
        server: &KeyValueServer,
        tls: Option<&TlsConnector>,
    ) -> Result<Self, Unanswered> {
        let broken = |error: io::Error| Unanswered::Broken(Line(error).to_string());
        let allowance = Allowance::default();
        allowance.set(ANSWER_MAX);
        let stream = stream(server, tls).await.map_err(broken)?;
        let stream = Bounded::new(stream, allowance.clone());
        let config = AsyncConnectionConfig::new()
            // Times are those of whoever asks.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1);
        let login = &server.login;
        let (connection, driver) =
            MultiplexedConnection::new_with_config(login, stream, config).await?;
        let mut link = Self {
            connection,
            allowance,
            driver: tokio::spawn(driver),
            answered: Instant::now(),
        };
        link.ask(&Command::Read(cmd("PING"))).await?;
        Ok(link)
    }

    /// Whether the other side has not closed it, as far as that was heard.
    pub(super) fn is_open(&self) -> bool {
        !self.driver.is_finished()
    }

    /// How long ago it answered.
    pub(super) fn idle(&self) -> Duration {
        self.answered.elapsed()
    }

    /// Asks, and waits for the answer. Whoever does not wait for it must drop the connection.
    pub(super) async fn ask(&mut self, command: &Command<'_>) -> Result<Value, Unanswered> {
        self.allowance.set(ANSWER_MAX);
        let answer = command.ask(&mut self.connection).await;
        self.answered = Instant::now();
        answer.map_err(Unanswered::from)
    }
}

/// A connected stream, with TLS where that is asked for.
async fn stream(
    server: &KeyValueServer,
    tls: Option<&TlsConnector>,
) -> io::Result<Box<dyn Duplex>> {
    let socket = server.dial().await?;
    let stream = match server.address() {
        ServerAddress::Unix(_) => {
            let stream = BlockingUnix::from(socket);
            stream.set_nonblocking(true)?;
            return Ok(Box::new(UnixStream::from_std(stream)?));
        }
        ServerAddress::Tcp(..) => BlockingTcp::from(socket),
    };
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE / 3)
        .with_retries(3);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    let stream = TcpStream::from_std(stream)?;
    match (tls, server.tls_name()) {
        (Some(tls), Some(name)) => {
            let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
            Ok(Box::new(tls.connect(name, stream).await?))
        }
        _ => Ok(Box::new(stream)),
    }
}
