//! Sends a request and follows its redirects.

use bytes::Bytes;
use faasw_common::text::Line;
use http::{HeaderValue, Method, StatusCode, header};
use reqwest::{RequestBuilder, Response, Url};
use tokio::time::timeout;

use super::{
    Registry,
    body::BodyChunks,
    failure::{broken, host_of},
    location,
};
use crate::{OciError, access::is_same_origin};

/// Maximum number of redirects of a request.
const REDIRECTS_MAX: usize = 5;

/// A request that may be sent more than once.
pub(super) struct RegistryRequest {
    pub(super) method: Method,
    pub(super) url: Url,
    accept: Option<&'static str>,
    body: Option<(&'static str, Bytes)>,
}

impl RegistryRequest {
    pub(super) fn new(method: Method, url: Url) -> Self {
        Self {
            method,
            url,
            accept: None,
            body: None,
        }
    }

    pub(super) fn accept(mut self, types: &'static str) -> Self {
        self.accept = Some(types);
        self
    }

    pub(super) fn body(mut self, kind: &'static str, bytes: Bytes) -> Self {
        self.body = Some((kind, bytes));
        self
    }
}

impl Registry {
    /// Sends a request, logs in if the registry requires it, and follows redirects. Other hosts
    /// receive no credentials of the registry. If the registry is used with TLS, no redirect leads
    /// to a connection without TLS.
    pub(super) async fn exchange(
        &self,
        registry_request: &RegistryRequest,
    ) -> Result<Response, OciError> {
        let mut url = registry_request.url.clone();
        let mut has_logged_in = false;
        for _ in 0..=REDIRECTS_MAX {
            let is_home = is_same_origin(&url, &self.base);
            let mut request = self
                .client
                .request(registry_request.method.clone(), url.clone());
            if let Some(types) = registry_request.accept {
                request = request.header(header::ACCEPT, types);
            }
            if is_home && let Some(shown) = &*self.shown.lock().await {
                request = request.header(header::AUTHORIZATION, shown);
            }
            let response = match &registry_request.body {
                Some((kind, bytes)) => {
                    let request = request.header(header::CONTENT_TYPE, *kind);
                    self.send_body(request, &url, bytes.clone()).await?
                }
                None if registry_request.method == Method::POST => {
                    let empty = HeaderValue::from_static("0");
                    let request = request.header(header::CONTENT_LENGTH, empty);
                    self.send(request, &url).await?
                }
                None => self.send(request, &url).await?,
            };
            let status = response.status();
            if status == StatusCode::UNAUTHORIZED && is_home {
                if has_logged_in || !self.log_in(response.headers()).await? {
                    return Err(self.unauthorized());
                }
                has_logged_in = true;
                continue;
            }
            let is_reading = [Method::GET, Method::HEAD].contains(&registry_request.method);
            let leads = status.is_redirection() && status != StatusCode::NOT_MODIFIED;
            match location(response.headers()) {
                Some(to) if leads && is_reading => url = self.redirect_target(&url, to)?,
                _ => return Ok(response),
            }
        }
        let why = format!("it leads elsewhere more than {REDIRECTS_MAX} times");
        Err(OciError::protocol(&host_of(&registry_request.url), why))
    }

    /// Returns the target of a redirect.
    pub(super) fn redirect_target(&self, from: &Url, to: &str) -> Result<Url, OciError> {
        let host = host_of(from);
        let next = from
            .join(to)
            .map_err(|error| OciError::protocol(&host, format!("it leads to {to:?}: {error}")))?;
        match (self.base.scheme(), next.scheme()) {
            (_, "https") | ("http", "http") => Ok(next),
            _ => Err(OciError::Downgrade {
                host,
                to: Line(host_of(&next)).to_string(),
            }),
        }
    }

    /// Sends a request. The timeout covers everything up to the header of the response.
    pub(super) async fn send(
        &self,
        request: RequestBuilder,
        url: &Url,
    ) -> Result<Response, OciError> {
        let sent = timeout(self.access.longest_silence(), request.send()).await;
        sent.map_err(|_| self.stalled(url))?
            .map_err(|error| broken(url, error))
    }

    /// Sends a request with a body. The timeout restarts whenever the registry accepts a piece.
    async fn send_body(
        &self,
        request: RequestBuilder,
        url: &Url,
        bytes: Bytes,
    ) -> Result<Response, OciError> {
        let (chunks, mut taken) = BodyChunks::of(bytes);
        let sending = request.body(reqwest::Body::wrap(chunks)).send();
        let mut sending = std::pin::pin!(sending);
        loop {
            let silence = tokio::time::sleep(self.access.longest_silence());
            tokio::select! {
                sent = &mut sending => return sent.map_err(|error| broken(url, error)),
                Ok(()) = taken.changed() => {}
                () = silence => return Err(self.stalled(url)),
            }
        }
    }

    pub(super) fn unauthorized(&self) -> OciError {
        OciError::Unauthorized {
            registry: self.reference.registry().to_owned(),
            had_one: self.credential.is_some(),
        }
    }

    /// Returns the response if it has this status. Otherwise returns an error with the registry's
    /// message.
    pub(super) async fn expect(
        &self,
        response: Response,
        status: StatusCode,
    ) -> Result<Response, OciError> {
        let found = response.status();
        if found == status {
            return Ok(response);
        }
        let host = host_of(response.url());
        if found.is_success() || found.is_redirection() {
            return Err(OciError::protocol(
                &host,
                format!("it answers {found} instead of {status}"),
            ));
        }
        let detail = self.detail(response).await;
        Err(OciError::Refused {
            host,
            status: found,
            detail,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Access, OciError, Reference, Registry, registry::Action};

    #[test]
    fn redirects_never_lead_from_tls_to_plain_http() {
        let redirect_target = |reference: &str, to: &str| {
            let reference: Reference = reference.parse().unwrap();
            let registry =
                Registry::new(&reference, Action::Pull, Access::default(), None).unwrap();
            registry.redirect_target(&registry.base, to)
        };
        let to = redirect_target("reg.test/a", "//cdn.test:8443/x?y").unwrap();
        assert_eq!(to.as_str(), "https://cdn.test:8443/x?y");
        for to in [
            "http://reg.test/x",
            "http://cdn.test/x",
            "HTTP://reg.test:443/",
            "ftp://reg.test/",
        ] {
            let refused = redirect_target("reg.test/a", to);
            assert!(matches!(refused, Err(OciError::Downgrade { .. })), "{to}");
        }
        assert!(redirect_target("localhost:5000/a", "http://localhost:5001/x").is_ok());
    }
}
