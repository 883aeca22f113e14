//! Bindings that `bindgen!` generates for the world `implemented` in `wit/world.wit`.
//!
//! The generated traits name the resource types of other modules here, and those types contain
//! generated codes and flags. So this module and those modules depend on each other.

#![allow(
    missing_docs,
    clippy::all,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "generated; the WIT files document it"
)]

wasmtime::component::bindgen!({
    path: "wit",
    world: "faasw:runtime/implemented",
    // Every function may trap: a handle that the table does not have is the function's fault and
    // ends it.
    imports: { default: trappable },
    with: {
        "wasi:io/error.error": crate::wasip2::streams::IoError,
        "wasi:io/poll.pollable": crate::wasip2::poll::Pollable,
        "wasi:io/streams.input-stream": crate::wasip2::streams::InputStream,
        "wasi:io/streams.output-stream": crate::wasip2::streams::OutputStream,
        "wasi:filesystem/types.descriptor": crate::wasip2::files::Descriptor,
        "wasi:filesystem/types.directory-entry-stream": crate::wasip2::files::Listing,
        "wasi:http/types.fields": crate::http::Fields,
        "wasi:http/types.incoming-request": crate::http::IncomingRequest,
        "wasi:http/types.incoming-body": crate::http::IncomingBody,
        "wasi:http/types.future-trailers": crate::http::FutureTrailers,
        "wasi:http/types.outgoing-response": crate::http::OutgoingResponse,
        "wasi:http/types.response-outparam": crate::http::ResponseOutparam,
        "wasi:http/types.outgoing-body": crate::http::OutgoingBody,
        "wasi:http/types.outgoing-request": crate::http::OutgoingRequest,
        "wasi:http/types.future-incoming-response": crate::http::FutureIncomingResponse,
        "wasi:http/types.incoming-response": crate::http::IncomingResponse,
        "wasi:http/types.request-options": crate::http::RequestOptions,
    },
    trappable_error_type: {
        "wasi:io/streams.stream-error" => crate::wasip2::streams::StreamFailure,
        "wasi:filesystem/types.error-code" => crate::wasip2::files::FileFailure,
        "wasi:http/types.header-error" => crate::http::HeaderFailure,
        "wasi:http/types.error-code" => crate::http::HttpFailure,
    },
});
