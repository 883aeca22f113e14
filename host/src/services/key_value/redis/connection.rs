//! A connection to the server: logged in, with its database selected. It carries one command at a
//! time.

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
    bounded::{ByteAllowance, Duplex, bounded},
    server::{KeyValueServer, ServerAddress},
};

/// The most bytes of an answer: the size of a record, and the protocol's overhead for each of its
/// items.
const ANSWER_MAX: usize = RECORD_MAX + (64 << 10);

/// Idle time before the first keepalive probe. Three probes take as long again, so a server that
/// has vanished is noticed after twice this time.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Why a server of a cluster cannot be used.
pub(super) const OF_CLUSTER: &str =
    "it is one of a cluster, and a node needs one server that has all keys";

/// A command for the server.
pub(super) enum Command<'a> {
    /// A command that only reads and may be repeated.
    Read(Cmd),
    /// A script that only reads.
    ReadBy(ScriptInvocation<'a>),
    /// A script that writes and must not run twice.
    Change(ScriptInvocation<'a>),
}

impl Command<'_> {
    pub(super) fn reads(&self) -> bool {
        !matches!(self, Self::Change(_))
    }

    async fn send(&self, connection: &mut MultiplexedConnection) -> RedisResult<Value> {
        match self {
            Self::Read(command) => command.query_async(connection).await,
            // If the server does not know the script, it is sent and invoked again. The first
            // attempt has done nothing.
            Self::ReadBy(script) | Self::Change(script) => script.invoke_async(connection).await,
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum CommandError {
    /// The server has rejected the command with this message. The connection is usable.
    Refused(String),
    /// A server that is now a replica or part of a cluster has rejected the command with this
    /// message. The server's name may lead to another server by now.
    Demoted(String),
    /// The connection is not usable any more.
    Broken(String),
}

impl From<RedisError> for CommandError {
    fn from(error: RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => {
                Self::Demoted(words_of(&error))
            }
            ErrorKind::Server(
                ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::CrossSlot,
            ) => Self::Demoted(format!("{OF_CLUSTER} ({})", words_of(&error))),
            ErrorKind::Server(_) | ErrorKind::Extension => Self::Refused(words_of(&error)),
            ErrorKind::AuthenticationFailed => {
                Self::Refused("it rejected the login: check user name and password".to_owned())
            }
            _ => Self::Broken(Line(error).to_string()),
        }
    }
}

/// Returns a server's message, shortened. The message may contain keys, which are text of
/// functions.
fn words_of(error: &RedisError) -> String {
    let (code, detail) = (error.code().unwrap_or("ERR"), error.detail());
    let words: String = format!("{code} {}", detail.unwrap_or_default())
        .chars()
        .take(200)
        .collect();
    Line(words.trim_end()).to_string()
}

/// Returns the TLS connector for a server. It trusts the usual authorities and those of the
/// operator.
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

#[derive(Debug)]
pub(super) struct RedisConnection {
    connection: MultiplexedConnection,
    allowance: ByteAllowance,
    /// The task that writes and reads. It ends when the peer closes the connection.
    driver: JoinHandle<()>,
    /// When the server last answered.
    answered: Instant,
}

impl Drop for RedisConnection {
    fn drop(&mut self) {
        // The task would wait for answers that no caller needs.
        self.driver.abort();
    }
}

impl RedisConnection {
    /// Connects, logs in and waits until the server answers, so that the next command finds it
    /// ready.
    pub(super) async fn open(
        server: &KeyValueServer,
        tls: Option<&TlsConnector>,
    ) -> Result<Self, CommandError> {
        let broken = |error: io::Error| CommandError::Broken(Line(error).to_string());
        let allowance = ByteAllowance::default();
        allowance.set(ANSWER_MAX);
        let stream = stream(server, tls).await.map_err(broken)?;
        let stream = bounded(stream, allowance.clone());
        let config = AsyncConnectionConfig::new()
            // The callers have timeouts of their own.
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
        link.send(&Command::Read(cmd("PING"))).await?;
        Ok(link)
    }

    /// Whether the connection is open, as far as the node has noticed.
    pub(super) fn is_open(&self) -> bool {
        !self.driver.is_finished()
    }

    /// Returns the time since the last answer.
    pub(super) fn idle(&self) -> Duration {
        self.answered.elapsed()
    }

    /// Sends a command and waits for the answer. A caller that does not wait for it must drop the
    /// connection.
    pub(super) async fn send(&mut self, command: &Command<'_>) -> Result<Value, CommandError> {
        self.allowance.set(ANSWER_MAX);
        let answer = command.send(&mut self.connection).await;
        self.answered = Instant::now();
        answer.map_err(CommandError::from)
    }
}

/// Returns a connected stream, with TLS if the server uses it.
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
