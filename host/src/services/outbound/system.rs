//! What this host knows of names.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    path::Path,
};

/// Where names are asked for.
const DNS: u16 = 53;

/// What the connector is told of names: it can read no file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct System {
    /// What `/etc/hosts` has.
    pub(crate) hosts: Vec<u8>,
    /// Servers of names, in their order.
    pub(crate) servers: Vec<SocketAddr>,
}

impl System {
    /// What the host's files say. Who cannot be read says nothing: names are not found then.
    pub(crate) fn read() -> Self {
        let read = |path: &str| match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    let path = Path::new(path).display();
                    tracing::warn!(%error, "{path} cannot be read: functions' requests go without it");
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

/// The servers of a `resolv.conf` (resolv.conf(5)).
fn servers(file: &[u8]) -> Vec<SocketAddr> {
    let servers = match resolv_conf::Config::parse(file) {
        Ok(config) => config.nameservers,
        Err(error) => {
            tracing::warn!(%error, "/etc/resolv.conf cannot be understood: functions' requests find no names");
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
    fn servers_are_those_of_the_file() {
        let file =
            b"# here\nsearch a.test\nnameserver 192.0.2.1\nnameserver 2001:db8::1\noptions edns0\n";
        let expected = ["192.0.2.1:53", "[2001:db8::1]:53"];
        let expected = expected.map(|server| server.parse::<SocketAddr>().unwrap());
        assert_eq!(servers(file), expected);
        assert_eq!(servers(b""), []);
        assert_eq!(servers(b"nameserver one\n"), []);
    }
}
