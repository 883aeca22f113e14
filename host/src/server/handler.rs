//! What answers requests.

use std::future::Future;

use http::{Request, Response};

use super::bodies::Received;
use crate::message::Body;

/// What answers the requests of a listener.
pub(crate) trait Handler: Clone + Send + Sync + 'static {
    /// Answers one request; failures are answers, too.
    fn answer(self, request: Request<Received>) -> impl Future<Output = Response<Body>> + Send;
}
