//! How a registry is spoken to: by which authorities, in which times, and who may be shown
//! credentials.
//!
//! A registry names the server that gives tokens for it (`WWW-Authenticate: Bearer realm=…`), and
//! clients show that one the registry's password. Docker and most others do that wherever the realm
//! is, so whoever answers once for a registry is told its clients' passwords. Here a realm is shown
//! them only
//! - at the registry's own host, or at a host above or below it by name (`gitlab.com` for
//!   `registry.gitlab.com`): whoever has a domain says who answers below it;
//! - at the one that Docker Hub and DigitalOcean's registry are known to have;
//! - at a host that the user named,
//!
//! and by TLS, unless the registry itself is spoken to without. Any other may be asked for a token
//! that needs no log-in.

use std::{net::IpAddr, sync::Arc, time::Duration};

use reqwest::{Client, Url, redirect};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::{OciError, Reference};

/// How long it may take to connect.
const CONNECT: Duration = Duration::from_secs(10);

/// How long nothing may come unless another time is given.
const STALL: Duration = Duration::from_secs(30);

/// Bytes a second that come at least, on the whole, beside a first time of twice the longest
/// silence: else a registry that sends a byte whenever it must would be listened to for weeks.
pub(crate) const RATE_MIN: u64 = 8 << 10;

/// Registries whose servers of tokens are elsewhere: publicly known, and not theirs alone to say.
const KNOWN: [(&str, &str); 2] = [
    ("docker.io", "auth.docker.io"),
    ("registry.digitalocean.com", "api.digitalocean.com"),
];

/// How registries are spoken to.
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
            stall: STALL,
            plain_http: false,
            authorities: Vec::new(),
            token_hosts: Vec::new(),
        }
    }
}

impl Access {
    /// Has a registry that neither sends nor takes anything for this long be given up.
    #[must_use]
    pub fn stall(mut self, time: Duration) -> Self {
        self.stall = time;
        self
    }

    /// Speaks without TLS: everybody on the way sees and may change what passes, credentials too.
    /// This machine's own (`localhost`, 127.0.0.0/8, `[::1]`) are spoken to so without this, unless
    /// authorities are given.
    #[must_use]
    pub fn plain_http(mut self, is_wanted: bool) -> Self {
        self.plain_http = is_wanted;
        self
    }

    /// Trusts the authorities of a file of PEM beside the system's.
    ///
    /// # Errors
    /// When it has none.
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

    /// Lets this host be shown credentials where a registry says so.
    #[must_use]
    pub fn token_host(mut self, host: impl Into<String>) -> Self {
        self.token_hosts.push(host.into().to_ascii_lowercase());
        self
    }

    pub(crate) fn longest_silence(&self) -> Duration {
        self.stall
    }

    /// Where a reference's registry answers.
    pub(crate) fn base(&self, of: &Reference) -> Result<Url, OciError> {
        let host = of.host();
        let without_tls = self.plain_http || (is_here(host) && self.authorities.is_empty());
        let scheme = if without_tls { "http" } else { "https" };
        Url::parse(&format!("{scheme}://{host}/")).map_err(|error| OciError::protocol(host, error))
    }

    /// A client that follows nothing by itself: where a registry leads to is looked at first.
    pub(crate) fn client(&self, of: &Reference) -> Result<Client, OciError> {
        let failed = |error: &dyn std::fmt::Display| OciError::Client(error.to_string());
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            // Who names authorities wants no others, also where theirs cannot be read.
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
        // A proxy of the environment is elsewhere, and would be told what is for this machine
        // alone.
        if is_here(of.host()) {
            client = client.no_proxy();
        }
        client
            .tls_backend_preconfigured(tls)
            .user_agent(concat!("faasw/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .referer(false)
            .connect_timeout(CONNECT.min(self.stall))
            .build()
            .map_err(|error| failed(&error))
    }

    /// Whether the server of tokens that a registry names may be shown what the registry is.
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
        // Without TLS a name proves nothing, so the very same.
        if realm.scheme() != "https" {
            return is_same_origin(base, realm);
        }
        home == host
            || (is_below(home, host) || is_below(host, home))
            || KNOWN.contains(&(registry.registry(), host))
    }
}

/// Whether a host is this machine.
fn is_here(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = |address: IpAddr| address.is_loopback();
    name == "localhost" || name.parse().is_ok_and(is_loopback)
}

/// Whether a name stands below another, which is a domain: not of one label alone, and no address.
fn is_below(name: &str, domain: &str) -> bool {
    let is_name = name.parse::<IpAddr>().is_err() && !name.starts_with('[');
    let above = name.strip_suffix(domain);
    is_name && domain.contains('.') && above.is_some_and(|above| above.ends_with('.'))
}

/// Whether two addresses are of the same scheme, host and port.
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
    fn only_who_vouches_for_a_registry_by_name_sees_its_credentials() {
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
    fn only_this_machine_is_spoken_to_without_tls_unasked() {
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
