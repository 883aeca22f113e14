//! Certificates, and workers that trust them.

use std::net::SocketAddr;

use bytes::Bytes;
use faasw_abi::outgoing::OutgoingHead;
use faasw_egress::frames::WorkerOptions;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::{Egress, head, loopback};

pub type Authority = CertifiedIssuer<'static, KeyPair>;

pub fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for some names, and its key.
pub type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

pub fn identity(authority: Option<&Authority>, names: &[&str], is_expired: bool) -> Identity {
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).unwrap();
    if is_expired {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    }
    let key = KeyPair::generate().unwrap();
    let certificate = match authority {
        Some(authority) => params.signed_by(&key, authority).unwrap(),
        None => params.self_signed(&key).unwrap(),
    };
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    (certificate.der().clone(), key.into())
}

/// Starts egress that trusts this authority, with the default options.
pub fn trusting(authority: &Authority) -> Egress {
    trusting_with(authority, WorkerOptions::default())
}

/// Starts egress that trusts this authority.
pub fn trusting_with(authority: &Authority, options: WorkerOptions) -> Egress {
    let authority = Bytes::copy_from_slice(authority.der());
    Egress::with(&loopback(), options, &[authority])
}

/// A request over TLS without a body.
pub fn https(host: &str, address: SocketAddr) -> OutgoingHead {
    OutgoingHead {
        scheme: b"https".to_vec(),
        ..head("GET", format!("{host}:{}", address.port()), "/", &[])
    }
}
