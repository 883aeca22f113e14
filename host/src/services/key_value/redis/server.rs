//! The server that holds the stores, and how connections to it are made.

use std::{
    fmt,
    future::Future,
    io,
    net::{TcpStream, ToSocketAddrs as _},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
    pin::Pin,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use ::redis::{ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo};
use faasw_common::text::Line;
use rustls::pki_types::CertificateDer;
use thiserror::Error;
use tokio::sync::Semaphore;

use crate::services::trust::{TrustError, authorities};

/// How long one address of the server may take to accept a connection. It is short, so that several
/// addresses can be tried within the caller's time limit.
const CONNECT: Duration = Duration::from_secs(1);

/// Connections that this process makes at the same time.
const DIALS: usize = 4;

/// The largest length of a password in bytes.
const PASSWORD_MAX: usize = 4 << 10;

/// The Redis server that holds the key-value stores of a node's functions, in place of a file of
/// the node's own. All nodes with the same server share the stores. The operator runs the server:
/// every client that can read it has the data of all functions, and every client that can write to
/// it can change that data.
///
/// ```
/// use faasw::KeyValueServer;
///
/// let server: KeyValueServer = "redis://faasw@store.internal:6379/2".parse()?;
/// let server = server.password("secret")?;
/// assert_eq!(server.to_string(), "redis://store.internal:6379/2");
/// # Ok::<(), faasw::KeyValueServerError>(())
/// ```
///
/// The output of `Display` and `Debug` contains neither user nor password.
#[derive(Clone)]
pub struct KeyValueServer {
    address: ServerAddress,
    has_tls: bool,
    pub(super) login: RedisConnectionInfo,
    pub(super) authorities: Vec<CertificateDer<'static>>,
    dial: Arc<dyn Dial>,
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerAddress {
    /// A host name or an IP address, and a port.
    Tcp(String, u16),
    /// A socket's path.
    Unix(PathBuf),
}

/// Why a text is not a valid server or password. The messages do not contain the text, because a
/// password may be in it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyValueServerError {
    /// The text is not a URL of a supported form.
    #[error(
        "not of the form redis://[USER[:PASSWORD]@]HOST[:PORT][/DB], the same with rediss:// for \
         TLS, or unix:///PATH[?db=DB]: {0}"
    )]
    Url(&'static str),
    /// The password is empty, too long or no text.
    #[error("the password is not text of 1 to {} bytes", PASSWORD_MAX)]
    Password,
    /// Certificates are not trusted.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

/// A connection that is being made.
pub type Dialing = Pin<Box<dyn Future<Output = io::Result<OwnedFd>> + Send>>;

/// Connects to the server each time that the node needs a connection: for a process that cannot
/// connect itself, or connects in a way of its own.
pub trait Dial: fmt::Debug + Send + Sync {
    /// Returns a connected socket of the address's kind. Dropping the future cancels the attempt.
    ///
    /// # Errors
    /// Returns the reason why there is no connection. Its text is meant for the operator.
    fn dial(&self) -> Dialing;
}

impl ServerAddress {
    /// Connects and waits for the connection. A name is resolved by the system each time. Of its
    /// addresses, the first that accepts a connection within one second is used. Blocks.
    ///
    /// # Errors
    /// Returns the error of name resolution, that of the last address that was tried, or `NotFound`
    /// if the name has no address.
    pub fn connect(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(host, port) => {
                let mut failed = io::Error::from(io::ErrorKind::NotFound);
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, CONNECT) {
                        Ok(stream) => return Ok(stream.into()),
                        Err(error) => failed = error,
                    }
                }
                Err(failed)
            }
            Self::Unix(path) => UnixStream::connect(path).map(OwnedFd::from),
        }
    }
}

impl KeyValueServer {
    /// Sets the password, in place of one in the URL.
    ///
    /// # Errors
    /// Returns [`KeyValueServerError::Password`] if it is empty or longer than 4 KiB.
    pub fn password(mut self, password: &str) -> Result<Self, KeyValueServerError> {
        if !(1..=PASSWORD_MAX).contains(&password.len()) {
            return Err(KeyValueServerError::Password);
        }
        self.login = self.login.set_password(password);
        Ok(self)
    }

    /// Trusts these certificates of authorities, in PEM, in addition to the usual ones. They count
    /// only for connections with TLS.
    ///
    /// # Errors
    /// Returns [`KeyValueServerError::Trust`] if there is no certificate, or if one cannot be read.
    pub fn trust(mut self, pem: &[u8]) -> Result<Self, KeyValueServerError> {
        self.authorities.extend(authorities(pem)?);
        Ok(self)
    }

    /// Makes connections with `dial`, instead of in this process.
    #[must_use]
    pub fn dial_by(mut self, dial: Arc<dyn Dial>) -> Self {
        self.dial = dial;
        self
    }

    /// Returns the server's address.
    #[must_use]
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    pub(super) fn dial(&self) -> Dialing {
        self.dial.dial()
    }

    /// Returns the name that the server's certificate must have, if the connection has TLS.
    pub(super) fn tls_name(&self) -> Option<&str> {
        match &self.address {
            ServerAddress::Tcp(host, _) if self.has_tls => Some(host),
            _ => None,
        }
    }
}

impl FromStr for KeyValueServer {
    type Err = KeyValueServerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = |why| Err(KeyValueServerError::Url(why));
        // TLS is done here, because the library's would bring its own choice of cryptography and
        // authorities.
        let plain = text
            .strip_prefix("rediss://")
            .map(|rest| format!("redis://{rest}"));
        let has_tls = plain.is_some();
        let url = plain.as_deref().unwrap_or(text);
        let is_socket = url.starts_with("unix:") || url.starts_with("redis+unix:");
        if !is_socket && !url.starts_with("redis://") {
            return refuse("it begins with another scheme");
        }
        if url.contains('#') || (!is_socket && url.contains('?')) {
            return refuse("? and # of a password are written as %3F and %23");
        }
        let known = |pair: &str| {
            ["db=", "user=", "pass="]
                .iter()
                .any(|name| pair.starts_with(name))
        };
        let (_, query) = url.split_once('?').unwrap_or_default();
        if !query.is_empty() && !query.split('&').all(known) {
            return refuse("only db=, user= and pass= may follow the path");
        }
        let Ok(info) = url.into_connection_info() else {
            return refuse("host, port or database cannot be read");
        };
        let login = info.redis_settings().clone().set_skip_set_lib_name();
        if login.db() < 0 {
            return refuse("the number of a database is 0 or more");
        }
        let password = login.password().map_or(0, str::len);
        if password > PASSWORD_MAX {
            return Err(KeyValueServerError::Password);
        }
        let address = match info.addr() {
            ConnectionAddr::Tcp(host, port) => ServerAddress::Tcp(host.clone(), *port),
            ConnectionAddr::Unix(path) => ServerAddress::Unix(path.clone()),
            _ => return refuse("it begins with another scheme"),
        };
        Ok(Self {
            dial: Arc::new(Direct::new(address.clone())),
            address,
            has_tls,
            login,
            authorities: Vec::new(),
        })
    }
}

impl fmt::Display for KeyValueServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = self.login.db();
        match &self.address {
            ServerAddress::Tcp(host, port) => {
                let scheme = if self.has_tls { "rediss" } else { "redis" };
                if host.contains(':') {
                    write!(f, "{scheme}://[{host}]:{port}")?
                } else {
                    write!(f, "{scheme}://{}:{port}", Line(host))?
                }
                if database != 0 {
                    write!(f, "/{database}")?;
                }
            }
            ServerAddress::Unix(path) => {
                write!(f, "unix://{}", Line(path.display()))?;
                if database != 0 {
                    write!(f, "?db={database}")?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for KeyValueServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyValueServer({self})")
    }
}

/// Makes connections in this process.
#[derive(Debug)]
struct Direct {
    address: ServerAddress,
    /// A caller that gives up leaves a thread behind that still tries to connect. The permits bound
    /// the number of these threads.
    turns: Arc<Semaphore>,
}

impl Direct {
    fn new(address: ServerAddress) -> Self {
        Self {
            address,
            turns: Arc::new(Semaphore::new(DIALS)),
        }
    }
}

impl Dial for Direct {
    fn dial(&self) -> Dialing {
        let (address, turns) = (self.address.clone(), self.turns.clone());
        Box::pin(async move {
            let turn = turns.acquire_owned().await.map_err(io::Error::other)?;
            let connected = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                address.connect()
            });
            connected.await.map_err(io::Error::other)?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> KeyValueServer {
        url.parse().unwrap()
    }

    #[test]
    fn shown_server_addresses_contain_no_password() {
        for (url, shown) in [
            ("redis://store", "redis://store:6379"),
            ("redis://:hush@store:7000/3", "redis://store:7000/3"),
            ("rediss://me:hush@[::1]/0", "rediss://[::1]:6379"),
            ("unix:///run/redis.sock", "unix:///run/redis.sock"),
            (
                "redis+unix:///run/a%20b?db=2&pass=hush&user=me",
                "unix:///run/a b?db=2",
            ),
        ] {
            let server = server(url);
            assert_eq!(server.to_string(), shown);
            assert_eq!(format!("{server:?}"), format!("KeyValueServer({shown})"));
            assert_eq!(server.tls_name().is_some(), url.starts_with("rediss"));
        }
        let login = server("redis://me:h%2Fsh%23@store").login;
        assert_eq!(login.username(), Some("me"));
        assert_eq!(login.password(), Some("h/sh#"));
        let given = server("redis://store").password("hush").unwrap();
        assert_eq!(given.login.password(), Some("hush"));
        assert!(!format!("{given:?} {given}").contains("hush"));
    }

    #[test]
    fn invalid_server_addresses_are_rejected_without_repeating_them() {
        for url in [
            "",
            "hush",
            "http://:hush@store",
            "redis:hush",
            "redis://",
            "redis://:hush@store/x",
            "redis://:hush@store/-1",
            "redis://:hush@store:port",
            "redis://:hush@store?protocol=resp3",
            "rediss://:hush@store#insecure",
            "rediss+unix:///hush",
            "unix://hush/path",
            "unix:///path?pas=hush",
            "REDIS://:hush@store",
            &format!("redis://:{}@store", "hush".repeat(2_000)),
        ] {
            let refused = url.parse::<KeyValueServer>().unwrap_err();
            let told = format!("{refused} {refused:?}");
            assert!(!told.contains("hush"), "{url}: {told}");
        }
        for password in ["", &"x".repeat(PASSWORD_MAX + 1)] {
            assert!(server("redis://store").password(password).is_err());
        }
        assert!(server("rediss://store").trust(b"nothing").is_err());
    }
}
