//! The error codes of outbound calls, as text for scripts.

use crate::bindings::wasi::http::types::ErrorCode;

/// Returns the code as WIT spells it, and what it means.
pub(crate) fn words(code: &ErrorCode) -> String {
    use ErrorCode as Code;
    let (name, meaning) = match code {
        Code::DnsTimeout => ("DNS-timeout", "no name server answered in time"),
        Code::DnsError(_) => ("DNS-error", "the host name cannot be resolved"),
        Code::DestinationNotFound => ("destination-not-found", "the host name does not exist"),
        Code::DestinationUnavailable => ("destination-unavailable", "the server is not reachable"),
        Code::DestinationIpProhibited => (
            "destination-IP-prohibited",
            "the operator has not opened the server's address (serve --allow-private ADDRESS); \
             the function's log names it",
        ),
        Code::DestinationIpUnroutable => (
            "destination-IP-unroutable",
            "there is no route to the server's address",
        ),
        Code::ConnectionRefused => ("connection-refused", "the server refused the connection"),
        Code::ConnectionTerminated => ("connection-terminated", "the server closed the connection"),
        Code::ConnectionTimeout => ("connection-timeout", "no connection was made in time"),
        Code::ConnectionReadTimeout => (
            "connection-read-timeout",
            "the server sent nothing for too long",
        ),
        Code::ConnectionWriteTimeout => (
            "connection-write-timeout",
            "the server took nothing for too long",
        ),
        Code::ConnectionLimitReached => (
            "connection-limit-reached",
            "too many calls are open: read or cancel the bodies of earlier responses",
        ),
        Code::TlsProtocolError => ("TLS-protocol-error", "the server does not speak TLS"),
        Code::TlsCertificateError => (
            "TLS-certificate-error",
            "the server's certificate is not trusted",
        ),
        Code::TlsAlertReceived(_) => ("TLS-alert-received", "the server ended the TLS handshake"),
        Code::HttpRequestDenied => (
            "HTTP-request-denied",
            "the function has no grant for it (deploy --allow-outbound ORIGIN)",
        ),
        Code::HttpRequestLengthRequired => (
            "HTTP-request-length-required",
            "the request needs a content-length",
        ),
        Code::HttpRequestBodySize(_) => (
            "HTTP-request-body-size",
            "the request's body does not have the length that its content-length declares",
        ),
        Code::HttpRequestMethodInvalid => (
            "HTTP-request-method-invalid",
            "the node sends no requests with this method",
        ),
        Code::HttpRequestUriInvalid => (
            "HTTP-request-URI-invalid",
            "the node sends no requests to this URL",
        ),
        Code::HttpRequestUriTooLong => ("HTTP-request-URI-too-long", "the URL is too long"),
        Code::HttpRequestHeaderSectionSize(_) => (
            "HTTP-request-header-section-size",
            "the request's header fields are too large",
        ),
        Code::HttpRequestHeaderSize(_) => (
            "HTTP-request-header-size",
            "a header field of the request is too large",
        ),
        Code::HttpRequestTrailerSectionSize(_) => (
            "HTTP-request-trailer-section-size",
            "the request's trailers are too large",
        ),
        Code::HttpRequestTrailerSize(_) => (
            "HTTP-request-trailer-size",
            "a trailer of the request is too large",
        ),
        Code::HttpResponseIncomplete => (
            "HTTP-response-incomplete",
            "the server's response ended too early",
        ),
        Code::HttpResponseHeaderSectionSize(_) => (
            "HTTP-response-header-section-size",
            "the response's header fields are too large",
        ),
        Code::HttpResponseHeaderSize(_) => (
            "HTTP-response-header-size",
            "a header field of the response is too large",
        ),
        Code::HttpResponseBodySize(_) => (
            "HTTP-response-body-size",
            "the response's body does not have the length that its content-length declares",
        ),
        Code::HttpResponseTrailerSectionSize(_) => (
            "HTTP-response-trailer-section-size",
            "the response's trailers are too large",
        ),
        Code::HttpResponseTrailerSize(_) => (
            "HTTP-response-trailer-size",
            "a trailer of the response is too large",
        ),
        Code::HttpResponseTransferCoding(_) => (
            "HTTP-response-transfer-coding",
            "the response has a transfer coding that the node does not support",
        ),
        Code::HttpResponseContentCoding(_) => (
            "HTTP-response-content-coding",
            "the response has a content coding that the node does not support",
        ),
        Code::HttpResponseTimeout => ("HTTP-response-timeout", "the server did not answer in time"),
        Code::HttpUpgradeFailed => ("HTTP-upgrade-failed", "the server did not upgrade"),
        Code::HttpProtocolError => (
            "HTTP-protocol-error",
            "the server's answer, or the request's scheme, is not valid HTTP",
        ),
        Code::LoopDetected => (
            "loop-detected",
            "the request has passed through too many functions",
        ),
        Code::ConfigurationError => ("configuration-error", "the node is not configured for it"),
        Code::InternalError(None) => ("internal-error", "the node could not send the request"),
        Code::InternalError(Some(why)) => return format!("internal-error: {why}"),
    };
    let detail = match code {
        ErrorCode::DnsError(payload) => payload.rcode.clone(),
        ErrorCode::TlsAlertReceived(payload) => payload.alert_message.clone(),
        _ => None,
    };
    match detail {
        Some(detail) => format!("{name}: {meaning} ({detail})"),
        None => format!("{name}: {meaning}"),
    }
}

/// Returns the usual text of a status (RFC 9110, section 15), because `wasi:http` does not pass the
/// text that a server sent.
pub(crate) fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}
