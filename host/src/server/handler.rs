//! What answers requests.

use std::future::Future;

use http::{Request, Response};

use super::bodies::Received;
use crate::message::{Body, Correlation, Follow};

/// What answers the requests of a listener.
pub(crate) trait Handler: Clone + Send + Sync + 'static {
    /// Answers one request, which is known by this; failures are answers, too.
    fn answer(
        self,
        request: Request<Received>,
        known: Correlation,
    ) -> impl Future<Output = Response<Body>> + Send;

    /// Follows a request that is answered before it comes here, if anybody wants to know of it.
    fn follow(&self, request: &Request<Received>, known: &Correlation) -> Option<Box<Follow>> {
        let _ = (request, known);
        None
    }
}
