//! The rules of `wasi:http/types`, called as the generated bindings call them.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use faasw_abi::outcome::Outcome;
use faasw_abi::wire::{FunctionKind, RequestHead, SeedConfig};
use wasmtime::Result;
use wasmtime::component::Resource;

use super::{
    Fields, HeaderFailure, HttpFailure, IncomingRequest, OutgoingBody, OutgoingRequest,
    OutgoingResponse, ResponseOutparam,
};
use crate::failure::Failure;
use crate::state::{State, Stdio};
use crate::testing::MemoryPlatform;
use crate::wasip2::bindings::wasi::http::outgoing_handler;
use crate::wasip2::bindings::wasi::http::types::{
    ErrorCode, HeaderError, Host, HostFields, HostFutureTrailers, HostIncomingBody,
    HostIncomingRequest, HostOutgoingBody, HostOutgoingRequest, HostOutgoingResponse,
    HostRequestOptions, HostResponseOutparam, Method, Scheme,
};
use crate::wasip2::bindings::wasi::io::poll::{Host as _, HostPollable};
use crate::wasip2::bindings::wasi::io::streams::{HostInputStream, HostOutputStream};
use crate::wasip2::streams::StreamFailure;

mod client;
mod fields;
mod request;
mod response;

type Function = State<MemoryPlatform>;

fn function() -> Function {
    let config = SeedConfig {
        kind: FunctionKind::HttpComponent,
        tells_state: false,
        has_entry: false,
        memory_limit: 1 << 20,
        arguments: Vec::new(),
        environment: Vec::new(),
        configuration: Vec::new(),
        secrets: Vec::new(),
        stores: Vec::new(),
        files: None,
    };
    State::new(config, Stdio::Log, None, MemoryPlatform::new(0))
}

/// Returns another copy of a handle; each call borrows or consumes its handles.
fn again<T: 'static>(resource: &Resource<T>) -> Resource<T> {
    Resource::new_own(resource.rep())
}

fn fields(function: &mut Function, pairs: &[(&str, &str)]) -> Resource<Fields> {
    let list = pairs
        .iter()
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect();
    HostFields::from_list(function, list).ok().unwrap()
}

fn response(function: &mut Function, headers: &[(&str, &str)]) -> Resource<OutgoingResponse> {
    let headers = fields(function, headers);
    HostOutgoingResponse::new(function, headers).unwrap()
}

fn set(function: &mut Function, response: Result<Resource<OutgoingResponse>, ErrorCode>) {
    let outparam = function.table.push(ResponseOutparam).unwrap();
    HostResponseOutparam::set(function, outparam, response).unwrap();
}

/// Writes to the body through its stream, and drops the stream.
fn write(
    function: &mut Function,
    body: &Resource<OutgoingBody>,
    bytes: &[u8],
) -> Result<(), StreamFailure> {
    let stream = HostOutgoingBody::write(function, again(body))
        .unwrap()
        .unwrap();
    let result = HostOutputStream::write(function, again(&stream), bytes.to_vec());
    HostOutputStream::drop(function, stream).unwrap();
    result
}

fn conclude(function: &mut Function) -> Result<(), Failure> {
    function.invocation.conclude(&mut function.platform)
}

fn told(result: Result<impl Sized, HeaderFailure>) -> Option<HeaderError> {
    match result {
        Ok(_) => None,
        Err(HeaderFailure::Code(error)) => Some(error),
        Err(HeaderFailure::Trap(error)) => panic!("{error:?}"),
    }
}
