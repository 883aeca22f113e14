//! How the client connects to registries: certificate authorities, timeouts, and the hosts that may
//! receive credentials.
//!
//! A registry names a token server (`WWW-Authenticate: Bearer realm=…`), to which clients send the
//! registry's password. Docker and most other clients do that wherever the realm is. So an attacker
//! who answers for a registry once obtains its clients' passwords. This client sends the
//! credentials only
//! - to the registry's own host, or to a host above or below it by name (`gitlab.com` for
//!   `registry.gitlab.com`), because the owner of a domain controls the names below it;
//! - to the known token servers of Docker Hub and of DigitalOcean's registry;
//! - to a host that the user named,
//!
//! and by TLS, unless the registry itself is used without TLS. Any other token server can only be
//! asked for a token that needs no login.

use std::{net::IpAddr, sync::Arc, time::Duration};

use reqwest::{Client, Url, redirect};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::{OciError, Reference};

/// The timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The default time without data after which a registry counts as stalled.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The minimum average rate in bytes per second, after an initial period of twice the timeout for
/// silence. Otherwise a registry could send one byte before each timeout and keep a transfer alive
/// for weeks.
pub(crate) const RATE_MIN: u64 = 8 << 10;

/// Registries whose token servers are on other hosts. They are public knowledge, so the registry
/// alone does not decide about them.
const KNOWN_TOKEN_HOSTS: [(&str, &str); 2] = [
    ("docker.io", "auth.docker.io"),
    ("registry.digitalocean.com", "api.digitalocean.com"),
];

/// The settings for connections to registries.
#[derive(Clone, Debug)]
pub struct Access {
    stall: Duration,
    plain_http: bool,
    authorities: Vec<CertificateDer<'static>>,
    token_hosts: Vec<String>,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            stall: STALL_TIMEOUT,
            plain_http: false,
            authorities: Vec::new(),
            token_hosts: Vec::new(),
        }
    }
}

impl Access {
    /// Sets the time without data in either direction after which a registry counts as stalled.
    #[must_use]
    pub fn stall(mut self, time: Duration) -> Self {
        self.stall = time;
        self
    }

    /// Disables TLS. Everyone on the network path can then read and change the traffic, including
    /// credentials. Registries on this machine (`localhost`, 127.0.0.0/8, `[::1]`) are used without
    /// TLS by default, unless authorities are set.
    #[must_use]
    pub fn plain_http(mut self, is_wanted: bool) -> Self {
        self.plain_http = is_wanted;
        self
    }

    /// Adds certificate authorities from a PEM file to those of the system.
    ///
    /// # Errors
    /// Returns [`OciError::Client`] if the file has no certificate or an unreadable one.
    pub fn authorities(mut self, pem: &[u8]) -> Result<Self, OciError> {
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| {
                OciError::Client(format!("a certificate in PEM cannot be read: {error}"))
            })?;
            self.authorities.push(certificate.into_owned());
        }
        if self.authorities.is_empty() {
            Err(OciError::Client(
                "there is no certificate in PEM".to_owned(),
            ))
        } else {
            Ok(self)
        }
    }

    /// Allows this host to receive credentials if a registry names it as its token server.
    #[must_use]
    pub fn token_host(mut self, host: impl Into<String>) -> Self {
        self.token_hosts.push(host.into().to_ascii_lowercase());
        self
    }

    pub(crate) fn longest_silence(&self) -> Duration {
        self.stall
    }

    /// Returns the base address of a reference's registry.
    pub(crate) fn base(&self, of: &Reference) -> Result<Url, OciError> {
        let host = of.host();
        let without_tls =
            self.plain_http || (is_loopback_host(host) && self.authorities.is_empty());
        let scheme = if without_tls { "http" } else { "https" };
        Url::parse(&format!("{scheme}://{host}/")).map_err(|error| OciError::protocol(host, error))
    }

    /// Creates a client that follows no redirects by itself, because their targets are checked
    /// first.
    pub(crate) fn client(&self, of: &Reference) -> Result<Client, OciError> {
        let failed = |error: &dyn std::fmt::Display| OciError::Client(error.to_string());
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            // A user who names authorities wants no others, even if these cannot be read.
            let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].map(std::env::var_os);
            if named.iter().flatten().any(|path| !path.is_empty()) {
                let why = found.errors.first().map(ToString::to_string);
                let why = why.unwrap_or_else(|| "there is no certificate".to_owned());
                return Err(OciError::Client(format!(
                    "SSL_CERT_FILE or SSL_CERT_DIR names no authority: {why}"
                )));
            }
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        for authority in &self.authorities {
            roots
                .add(authority.clone())
                .map_err(|error| failed(&error))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut client = Client::builder();
        // A proxy from the environment is another machine and must not see local requests.
        if is_loopback_host(of.host()) {
            client = client.no_proxy();
        }
        client
            .tls_backend_preconfigured(tls)
            .user_agent(concat!("faasw/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .referer(false)
            .connect_timeout(CONNECT_TIMEOUT.min(self.stall))
            .build()
            .map_err(|error| failed(&error))
    }

    /// Returns whether a token server that a registry names may receive the registry's credentials.
    pub(crate) fn may_see_credentials(
        &self,
        registry: &Reference,
        base: &Url,
        realm: &Url,
    ) -> bool {
        if base.scheme() == "https" && realm.scheme() != "https" {
            return false;
        }
        let (Some(home), Some(host)) = (base.host_str(), realm.host_str()) else {
            return false;
        };
        if self.token_hosts.iter().any(|named| named == host) {
            return true;
        }
        // Without TLS a name proves nothing, so only the registry's own origin is accepted.
        if realm.scheme() != "https" {
            return is_same_origin(base, realm);
        }
        home == host
            || (is_subdomain(home, host) || is_subdomain(host, home))
            || KNOWN_TOKEN_HOSTS.contains(&(registry.registry(), host))
    }
}

/// Returns whether a host is this machine.
fn is_loopback_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = |address: IpAddr| address.is_loopback();
    name == "localhost" || name.parse().is_ok_and(is_loopback)
}

/// Returns whether a name is below a domain. A domain has more than one label and is not an
/// address.
fn is_subdomain(name: &str, domain: &str) -> bool {
    let is_name = name.parse::<IpAddr>().is_err() && !name.starts_with('[');
    let above = name.strip_suffix(domain);
    is_name && domain.contains('.') && above.is_some_and(|above| above.ends_with('.'))
}

/// Returns whether two addresses have the same scheme, host and port.
pub(crate) fn is_same_origin(one: &Url, other: &Url) -> bool {
    let of = |url: &Url| {
        (
            url.scheme().to_owned(),
            url.host_str().map(ToOwned::to_owned),
            url.port_or_known_default(),
        )
    };
    of(one) == of(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(access: &Access, reference: &str, realm: &str) -> bool {
        let reference: Reference = reference.parse().unwrap();
        let base = access.base(&reference).unwrap();
        access.may_see_credentials(&reference, &base, &realm.parse().unwrap())
    }

    #[test]
    fn only_token_hosts_of_the_registry_get_its_credentials() {
        let access = Access::default();
        for (reference, realm, expected) in [
            ("ghcr.io/a", "https://ghcr.io/token", true),
            ("registry.gitlab.com/a", "https://gitlab.com/jwt/auth", true),
            ("reg.test/a", "https://auth.reg.test/token", true),
            ("reg.test/a", "https://reg.test:8443/token", true),
            ("reg.test:5000/a", "https://reg.test/token", true),
            ("docker.io/a", "https://auth.docker.io/token", true),
            (
                "registry.digitalocean.com/a",
                "https://api.digitalocean.com/v2/registry/auth",
                true,
            ),
            ("reg.test/a", "http://reg.test/token", false),
            ("reg.test/a", "https://evil.test/reg.test", false),
            ("reg.test/a", "https://reg.test@evil.test/", false),
            ("reg.test/a", "https://reg.test.evil.test/token", false),
            ("reg.test/a", "https://evilreg.test/token", false),
            ("a.test/a", "https://test/token", false),
            ("evil.test/a", "https://auth.docker.io/token", false),
            (
                "docker.io.evil.test/a",
                "https://auth.docker.io/token",
                false,
            ),
            ("10.0.0.1/a", "https://0.0.1/token", false),
            ("127.0.0.1:5000/a", "http://127.0.0.1:5000/token", true),
            ("127.0.0.1:5000/a", "http://127.0.0.1:5001/token", false),
            ("127.0.0.1:5000/a", "http://evil.test/token", false),
        ] {
            assert_eq!(
                may(&access, reference, realm),
                expected,
                "{reference} {realm}"
            );
        }
        let named = access.token_host("Auth.Example.com");
        assert!(may(&named, "reg.test/a", "https://auth.example.com/x"));
        assert!(!may(&named, "reg.test/a", "http://auth.example.com/x"));
        assert!(!may(&named, "reg.test/a", "https://example.com/x"));
    }

    #[test]
    fn only_loopback_hosts_are_used_without_tls_by_default() {
        let scheme = |access: &Access, text: &str| {
            let base = access.base(&text.parse().unwrap()).unwrap();
            base.scheme().to_owned()
        };
        let access = Access::default();
        for here in [
            "localhost/a",
            "localhost:5000/a",
            "127.0.0.1:1/a",
            "127.9.9.9/a",
            "[::1]:5000/a",
        ] {
            assert_eq!(scheme(&access, here), "http", "{here}");
        }
        for there in [
            "reg.test/a",
            "10.0.0.1:80/a",
            "localhost.evil.test/a",
            "[::2]/a",
            "127.0.0.1.evil.test/a",
        ] {
            assert_eq!(scheme(&access, there), "https", "{there}");
            assert_eq!(
                scheme(&access.clone().plain_http(true), there),
                "http",
                "{there}"
            );
        }
        assert!(access.authorities(b"nothing").is_err());
    }
}
