//! This host's configuration of names.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    path::Path,
    time::{Duration, Instant},
};

use crate::file_fingerprint::FileFingerprint;

/// The port of name servers.
const DNS: u16 = 53;

/// The most bytes that are read of either file: a little more than the connector accepts of
/// `/etc/hosts`.
const MOST: u64 = (4 << 20) + 1;

/// How old the configuration may be when a request is made.
const LOOK: Duration = Duration::from_secs(5);

/// The files that configure this host's name resolution, opened for reading.
#[derive(Debug, Default)]
pub struct NameFiles {
    /// `/etc/hosts`, if it exists.
    pub hosts: Option<OwnedFd>,
    /// `/etc/resolv.conf`, if it exists.
    pub servers: Option<OwnedFd>,
}

/// This host's configuration of names, and when it was read. Laptops change their network, and
/// hosts their name servers, while a node runs.
#[derive(Debug)]
pub(super) struct NameConfigCache {
    pub(super) system: NameConfig,
    looked: Option<Instant>,
    stamps: Option<[Option<FileFingerprint>; 2]>,
    /// The last attempt to read the files failed.
    has_failed: bool,
}

impl NameConfigCache {
    /// Starts with a configuration that was read before.
    pub(super) fn new(system: NameConfig) -> Self {
        Self {
            system,
            looked: None,
            stamps: None,
            has_failed: false,
        }
    }

    /// Whether it is time to read the files again.
    pub(super) fn is_old(&self) -> bool {
        self.looked.is_none_or(|looked| looked.elapsed() >= LOOK)
    }

    /// Records an attempt to read the files.
    pub(super) fn looks(&mut self) {
        self.looked = Some(Instant::now());
    }

    /// Records a failure. Returns whether it is the first since the last success.
    pub(super) fn fails(&mut self) -> bool {
        !std::mem::replace(&mut self.has_failed, true)
    }

    /// Takes over the contents of the files. Returns whether they have changed.
    ///
    /// # Errors
    /// Returns the error of a file that cannot be read. Then the earlier contents stay.
    pub(super) fn take(&mut self, files: NameFiles) -> io::Result<bool> {
        let files = [files.hosts, files.servers].map(|file| file.map(File::from));
        let stamp = |file: &Option<File>| {
            let file = file.as_ref().map(File::metadata).transpose()?;
            io::Result::Ok(file.as_ref().map(FileFingerprint::from))
        };
        let [hosts, resolv_conf] = &files;
        let stamps = Some([stamp(hosts)?, stamp(resolv_conf)?]);
        if self.stamps == stamps {
            self.has_failed = false;
            return Ok(false);
        }
        let read = |file: Option<File>| {
            let mut bytes = Vec::new();
            if let Some(file) = file {
                file.take(MOST).read_to_end(&mut bytes)?;
            }
            io::Result::Ok(bytes)
        };
        let [hosts, resolv_conf] = files;
        let system = NameConfig {
            hosts: read(hosts)?,
            servers: servers(&read(resolv_conf)?),
        };
        (self.stamps, self.has_failed) = (stamps, false);
        let is_news = system != self.system;
        self.system = system;
        Ok(is_news)
    }
}

/// The configuration of names for the connector, which can read no files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameConfig {
    /// The contents of `/etc/hosts`.
    pub(crate) hosts: Vec<u8>,
    /// The name servers, in order.
    pub(crate) servers: Vec<SocketAddr>,
}

impl NameConfig {
    /// Reads the host's files. A file that cannot be read counts as empty; then names are not
    /// found.
    pub(crate) fn read() -> Self {
        let read = |path: &str| match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    let path = Path::new(path).display();
                    tracing::warn!(%error, "{path} cannot be read: outbound calls do not use it");
                }
                Vec::new()
            }
        };
        Self {
            hosts: read("/etc/hosts"),
            servers: servers(&read("/etc/resolv.conf")),
        }
    }
}

/// Parses the name servers of a `resolv.conf` (resolv.conf(5)).
fn servers(file: &[u8]) -> Vec<SocketAddr> {
    let servers = match resolv_conf::Config::parse(file) {
        Ok(config) => config.nameservers,
        Err(error) => {
            tracing::warn!(%error, "/etc/resolv.conf is invalid: outbound calls cannot resolve \
                 names");
            return Vec::new();
        }
    };
    let servers = servers.into_iter().map(IpAddr::from);
    servers.map(|server| SocketAddr::new(server, DNS)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_name_files_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        let files = || {
            let open = |name| File::open(path(name)).ok().map(OwnedFd::from);
            NameFiles {
                hosts: open("hosts"),
                servers: open("resolv.conf"),
            }
        };
        let mut known = NameConfigCache::new(NameConfig::default());
        assert!(known.is_old());
        assert!(!known.take(files()).unwrap());
        fs::write(path("resolv.conf"), "nameserver 192.0.2.1\n").unwrap();
        assert!(known.take(files()).unwrap());
        let servers = |known: &NameConfigCache| known.system.servers.clone();
        assert_eq!(servers(&known), ["192.0.2.1:53".parse().unwrap()]);
        assert!(!known.take(files()).unwrap());
        // A new file that replaces the old one, as most programs write it, and then the same file
        // with other contents.
        fs::write(path("new"), "nameserver 192.0.2.2\n").unwrap();
        fs::rename(path("new"), path("resolv.conf")).unwrap();
        assert!(known.take(files()).unwrap());
        assert_eq!(servers(&known), ["192.0.2.2:53".parse().unwrap()]);
        fs::write(path("hosts"), "192.0.2.3 a.example\n").unwrap();
        assert!(known.take(files()).unwrap());
        assert_eq!(known.system.hosts, b"192.0.2.3 a.example\n");
        // Equal contents are no change, but a removed file is.
        fs::write(path("new"), "192.0.2.3 a.example\n").unwrap();
        fs::rename(path("new"), path("hosts")).unwrap();
        assert!(!known.take(files()).unwrap());
        fs::remove_file(path("hosts")).unwrap();
        assert!(known.take(files()).unwrap());
        assert!(known.system.hosts.is_empty());
        // A folder cannot be read, so the earlier contents stay.
        fs::create_dir(path("hosts")).unwrap();
        assert!(known.take(files()).is_err());
        assert!(known.fails() && !known.fails());
        assert_eq!(servers(&known), ["192.0.2.2:53".parse().unwrap()]);
    }

    #[test]
    fn name_servers_are_parsed_from_the_file() {
        let file =
            b"# here\nsearch a.test\nnameserver 192.0.2.1\nnameserver 2001:db8::1\noptions edns0\n";
        let expected = ["192.0.2.1:53", "[2001:db8::1]:53"];
        let expected = expected.map(|server| server.parse::<SocketAddr>().unwrap());
        assert_eq!(servers(file), expected);
        assert_eq!(servers(b""), []);
        assert_eq!(servers(b"nameserver one\n"), []);
    }
}
