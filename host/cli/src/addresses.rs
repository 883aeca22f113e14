//! Options of `up` and `serve` for the addresses on which they listen.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;
use faasw::NodeBuilder;
use faasw_client::HostName;

use super::{exit::Exit, values::host};

#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Addresses")]
pub struct Addresses {
    /// Serve functions on this address; port 0 takes any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Serve https instead, with this PEM certificate chain (repeatable)
    ///
    /// Each --tls-cert needs a --tls-key. With several certificates, the name that the client
    /// requests selects one. The node reads the files again when they change, and on SIGHUP.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Vec<PathBuf>,
    /// Private key of the certificate, as PEM; one for each --tls-cert, in the same order
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Vec<PathBuf>,
    /// Redirect http on this address to https, for hosts in a certificate
    #[arg(long, value_name = "ADDR", requires = "tls_cert")]
    pub redirect_http: Option<SocketAddr>,
    /// Serve each function at NAME.DOMAIN instead of at /NAME/
    ///
    /// The function sees the whole path.
    #[arg(long, value_name = "DOMAIN", value_parser = host)]
    pub domain: Option<HostName>,
    /// Keep serving /NAME/ at hosts outside of the domain
    ///
    /// Hosts that a function was deployed with (`deploy --host`) are excepted. Functions at /NAME/
    /// share one origin in a browser.
    #[arg(long, requires = "domain")]
    pub paths: bool,
    /// Serve Prometheus metrics and health checks on this address
    ///
    /// The paths are /metrics, /healthz, /livez and /readyz. Keep the address private: metrics name
    /// all functions. /metrics is also on the admin socket, and never on the address of functions.
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<SocketAddr>,
}

impl Addresses {
    /// Configures a node for these addresses.
    ///
    /// # Errors
    /// Returns a usage error if the numbers of certificates and keys differ.
    pub fn apply(&self, builder: NodeBuilder) -> Result<NodeBuilder, Exit> {
        let (certificates, keys) = (&self.tls_cert, &self.tls_key);
        if certificates.len() != keys.len() {
            return Err(Exit::usage(format_args!(
                "{} --tls-cert, but {} --tls-key: each certificate needs one key",
                certificates.len(),
                keys.len()
            )));
        }
        let builder = certificates.iter().zip(keys).fold(
            builder.listen(self.listen),
            |builder, (certificate, key)| builder.tls(certificate, key),
        );
        let builder = match self.redirect_http {
            Some(address) => builder.redirect_http(address),
            None => builder,
        };
        let builder = match &self.domain {
            Some(domain) => builder.domain(domain.clone()).paths(self.paths),
            None => builder,
        };
        Ok(match self.metrics {
            Some(address) => builder.metrics(address),
            None => builder,
        })
    }

    /// Returns all addresses.
    pub fn all(&self) -> impl Iterator<Item = SocketAddr> {
        let others = [self.redirect_http, self.metrics];
        std::iter::once(self.listen).chain(others.into_iter().flatten())
    }
}
