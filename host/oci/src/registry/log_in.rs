//! Logs in to a registry.

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use reqwest::Url;

use super::{Action, Registry, failure::host_of};
use crate::{
    OciError,
    authorization::{Challenge, TokenAnswer},
    credentials::Credential,
};

/// Maximum size of a token server's answer in bytes.
const TOKEN_MAX: u64 = 256 << 10;

/// The name of this program for token servers.
const CLIENT: &str = "faasw";

impl Registry {
    /// Obtains the authorization that a registry's challenge requires. Returns whether there is
    /// one.
    pub(super) async fn log_in(&self, headers: &HeaderMap) -> Result<bool, OciError> {
        let shown = match Challenge::of(headers) {
            Some(Challenge::Bearer { realm, service }) => {
                Some(self.token(&realm, service.as_deref()).await?)
            }
            Some(Challenge::Basic) => match &self.credential {
                Some(Credential::Password { user, password }) => Some(basic(user, password)?),
                _ => None,
            },
            None => None,
        };
        let has_one = shown.is_some();
        *self.shown.lock().await = shown;
        Ok(has_one)
    }

    /// Obtains a token from the token server that the registry names.
    async fn token(&self, realm: &str, service: Option<&str>) -> Result<HeaderValue, OciError> {
        let registry = self.reference.registry();
        let mut url = Url::parse(realm).map_err(|error| {
            OciError::protocol(registry, format!("tokens are had at {realm:?}: {error}"))
        })?;
        // A token that is sent without TLS is visible to everyone on the network path.
        url = self.redirect_target(&self.base, url.as_str())?;
        if self.credential.is_some()
            && !self
                .access
                .may_see_credentials(&self.reference, &self.base, &url)
        {
            return Err(OciError::Realm {
                registry: registry.to_owned(),
                realm: host_of(&url),
            });
        }
        let actions = match self.action {
            Action::Pull => "pull",
            Action::Push => "pull,push",
        };
        let scope = format!("repository:{}:{actions}", self.reference.repository());
        let mut pairs = vec![("scope", scope.as_str())];
        pairs.extend(service.map(|service| ("service", service)));
        let request = match &self.credential {
            Some(Credential::IdentityToken(token)) => {
                pairs.extend([
                    ("grant_type", "refresh_token"),
                    ("client_id", CLIENT),
                    ("refresh_token", token),
                ]);
                let form = Url::parse_with_params("http://form/", &pairs);
                let form = form.map_err(|error| OciError::protocol(registry, error))?;
                let form = form.query().unwrap_or_default().to_owned();
                let kind = "application/x-www-form-urlencoded";
                let request = self.client.request(Method::POST, url.clone());
                request.header(header::CONTENT_TYPE, kind).body(form)
            }
            Some(Credential::Password { user, password }) => {
                pairs.extend([("account", user.as_str()), ("client_id", CLIENT)]);
                url.query_pairs_mut().extend_pairs(&pairs);
                let request = self.client.request(Method::GET, url.clone());
                request.header(header::AUTHORIZATION, basic(user, password)?)
            }
            None => {
                url.query_pairs_mut().extend_pairs(&pairs);
                self.client.request(Method::GET, url.clone())
            }
        };
        // Redirects are not followed, because the credentials are for this server only.
        let response = self.send(request, &url).await?;
        if [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&response.status()) {
            return Err(self.unauthorized());
        }
        let host = host_of(&url);
        let response = self.expect(response, StatusCode::OK).await?;
        let answer = self
            .collect(response, "the answer with a token", TOKEN_MAX)
            .await?;
        // A parse error might contain the token, so it is dropped.
        let answer = serde_json::from_slice::<TokenAnswer>(&answer).ok();
        answer
            .and_then(TokenAnswer::header)
            .ok_or_else(|| OciError::protocol(&host, "it gives no token"))
    }
}

/// Returns the `Authorization` header for a user name and password.
fn basic(user: &str, password: &str) -> Result<HeaderValue, OciError> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let text = STANDARD.encode(format!("{user}:{password}"));
    let mut value = HeaderValue::try_from(format!("Basic {text}"))
        .map_err(|error| OciError::Client(error.to_string()))?;
    value.set_sensitive(true);
    Ok(value)
}
