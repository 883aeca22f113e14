//! The interface of the components that answer requests.

use std::future::Future;

use http::{Request, Response};

use super::bodies::RequestBodyStream;
use crate::message::{Body, Correlation, RequestRecorder};

/// A component that answers the requests of a listener.
pub(crate) trait Handler: Clone + Send + Sync + 'static {
    /// Answers one request. `correlation` identifies it. Failures are responses, too.
    fn answer(
        self,
        request: Request<RequestBodyStream>,
        correlation: Correlation,
    ) -> impl Future<Output = Response<Body>> + Send;

    /// Follows a request that is answered before it reaches the handler, if an observer receives
    /// requests.
    fn follow(
        &self,
        request: &Request<RequestBodyStream>,
        correlation: &Correlation,
    ) -> Option<Box<RequestRecorder>> {
        let _ = (request, correlation);
        None
    }
}
