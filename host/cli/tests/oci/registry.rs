//! A registry for one test: Debian's docker-registry, in a directory of its own. It is killed when
//! dropped.

use std::{
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

use crate::common::daemon::{Daemon, is_there, on_a_port};

/// The name of the program in Debian's package.
const PROGRAM: &str = "docker-registry";

/// The only user who may log in, and the password, also as `htpasswd -B` writes them.
pub const USER: &str = "me";
pub const PASSWORD: &str = "hush";
const HTPASSWD: &str = "me:$2y$05$DGyffegtBzqUyIqV8EcvDOWNVH0IIN15EyFik6FnpoJupXMV38Ta6\n";

/// The issuer of tokens, and the service that they are for.
pub const ISSUER: &str = "tests";
pub const SERVICE: &str = "a registry";

/// Returns an error if there is no such registry here.
pub fn is_missing() -> Result<(), &'static str> {
    is_there(PROGRAM, "--version")
        .then_some(())
        .ok_or("no docker-registry")
}

/// Returns the path of `oras`: where `.ci/oras` installs it, or on the search path.
pub fn oras() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_BIN_EXE_faasw"));
    let kept = here.ancestors().nth(2)?.join("oras/usr/bin/oras");
    let named = PathBuf::from("oras");
    [kept, named]
        .into_iter()
        .find(|program| is_there(program, "version"))
}

/// The credentials that a registry requires of its clients.
enum Wants {
    Nothing,
    /// A log-in, over TLS.
    Password,
    /// A token from a server at this address.
    Token(String),
}

/// A running registry.
pub struct Registry {
    pub folder: TempDir,
    pub port: u16,
    wants: Wants,
    daemon: Daemon,
}

impl Registry {
    /// Starts a registry that every client may use, without TLS.
    pub fn open() -> Self {
        Self::start(Wants::Nothing)
    }

    /// Starts a registry that requires a log-in, with TLS by an authority of its own.
    pub fn closed() -> Self {
        Self::start(Wants::Password)
    }

    /// Starts a registry without TLS that requires tokens from the server at this address, signed
    /// by the registry's own authority.
    pub fn of_tokens(realm: &str) -> Self {
        Self::start(Wants::Token(realm.to_owned()))
    }

    fn start(wants: Wants) -> Self {
        let mut registry = Self {
            folder: tempfile::tempdir().unwrap(),
            port: 0,
            wants,
            daemon: Daemon::default(),
        };
        registry.write_authority();
        let port = on_a_port(|port| {
            registry.port = *port;
            registry.try_run()
        });
        assert!(
            port.is_some(),
            "docker-registry does not start: {}",
            registry.log()
        );
        registry
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns host and port.
    pub fn name(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the path of the certificate of the registry's authority.
    pub fn authority(&self) -> String {
        self.path("ca.pem").to_str().unwrap().to_owned()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn write_authority(&self) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        fs::write(self.path("ca.pem"), authority.pem()).unwrap();
        fs::write(self.path("cert.pem"), certificate.pem()).unwrap();
        fs::write(self.path("key.pem"), key.serialize_pem()).unwrap();
        fs::write(self.path("htpasswd"), HTPASSWD).unwrap();
    }

    /// Starts the registry again with its existing data.
    pub fn run(&mut self) {
        assert!(self.try_run(), "{}", self.log());
    }

    fn try_run(&mut self) -> bool {
        let path = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let wanted = match &self.wants {
            Wants::Nothing => String::new(),
            Wants::Password => format!(
                "  tls:\n    certificate: {}\n    key: {}\nauth:\n  htpasswd:\n    realm: \
                 test\n    path: {}\n",
                path("cert.pem"),
                path("key.pem"),
                path("htpasswd")
            ),
            Wants::Token(realm) => format!(
                "auth:\n  token:\n    realm: {realm}\n    service: {SERVICE}\n    issuer: \
                 {ISSUER}\n    rootcertbundle: {}\n",
                path("ca.pem")
            ),
        };
        let config = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {}\n{}",
            path("data"),
            self.name(),
            wanted
        );
        fs::write(self.path("config.yml"), config).unwrap();
        let log = || {
            fs::File::options()
                .create(true)
                .append(true)
                .open(self.path("log"))
        };
        let mut command = Command::new(PROGRAM);
        command
            .args(["serve", &path("config.yml")])
            .stdin(Stdio::null())
            .stdout(log().unwrap())
            .stderr(log().unwrap());
        let is_ready = || TcpStream::connect(("127.0.0.1", self.port)).is_ok();
        let running = Daemon::run(&mut command, 30, is_ready);
        let runs = running.is_some();
        self.daemon = running.unwrap_or_default();
        runs
    }

    /// Kills the registry; its data stays.
    pub fn kill(&mut self) {
        self.daemon.kill();
    }
}
