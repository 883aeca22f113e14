//! Options of `up` and `serve` for the addresses on which they listen.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;
use faasw::NodeBuilder;
use faasw_client::HostName;

use super::{exit::Exit, values::host};

#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Node")]
pub struct Addresses {
    /// Serve functions on this address; port 0 takes any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Serve https instead, with the certificate chain in this file of PEM; several,
    /// each with its key, are chosen by the name that a client asks for. They are
    /// read again when they change, and on SIGHUP
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Vec<PathBuf>,
    /// The key of the certificate, in a file of PEM; one for each --tls-cert, in the
    /// same order
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Vec<PathBuf>,
    /// Redirect plain http on this address to https, for hosts that a certificate names
    #[arg(long, value_name = "ADDR", requires = "tls_cert")]
    pub redirect_http: Option<SocketAddr>,
    /// Serve the function NAME at http://NAME.DOMAIN/, with the whole path, and no
    /// longer at /NAME/ of any host
    #[arg(long, value_name = "DOMAIN", value_parser = host)]
    pub domain: Option<HostName>,
    /// Serve functions at /NAME/ all the same, at hosts outside of the domain that no
    /// function was deployed with. They share an origin there
    #[arg(long, requires = "domain")]
    pub paths: bool,
    /// Serve Prometheus metrics on this address too, at /metrics; they are
    /// always on the admin socket and never on the address of functions
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
                "there are {} --tls-cert and {} --tls-key: each certificate has one key",
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
