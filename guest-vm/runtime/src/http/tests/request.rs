//! The incoming request.

use super::*;
use crate::invocation::InvocationNumber;

/// Resources of an invocation are over when the next one begins, and do not refer to that.
#[test]
fn handles_of_an_ended_invocation_do_not_read_the_next() {
    let mut state = function();
    state.platform.inner.request_body = b"the next one's".to_vec();
    let old = IncomingRequest::new(InvocationNumber::default(), RequestHead::default());
    let old = state.table.push(old).unwrap();
    let body = state.consume(again(&old)).unwrap().unwrap();
    let stream = state.stream(again(&body)).unwrap().unwrap();
    let trailers = IncomingRequest::new(InvocationNumber::default(), RequestHead::default());
    let trailers = state.table.push(trailers).unwrap();
    let trailers = state.consume(trailers).unwrap().unwrap();
    let trailers = HostIncomingBody::finish(&mut state, trailers).unwrap();
    state.invocation.begin(&RequestHead::default());
    let read = state.read(again(&stream), 4);
    assert!(matches!(read, Err(StreamFailure::Closed)));
    let got = HostFutureTrailers::get(&mut state, trailers);
    assert!(matches!(got, Ok(Some(Ok(Ok(None))))));
    assert_eq!(state.platform.inner.body_read, 0);
}

#[test]
fn the_request_and_its_parts_are_taken_once() {
    let mut function = function();
    function.platform.inner.request_body = b"abc".to_vec();
    let request = IncomingRequest::new(
        InvocationNumber::default(),
        RequestHead {
            method: b"POST".to_vec(),
            scheme: b"https".to_vec(),
            path_and_query: b"/p".to_vec(),
            ..RequestHead::default()
        },
    );
    let request = function.table.push(request).unwrap();
    let state = &mut function;
    assert!(matches!(
        HostIncomingRequest::method(state, again(&request)).unwrap(),
        Method::Post
    ));
    assert!(matches!(
        HostIncomingRequest::scheme(state, again(&request)).unwrap(),
        Some(Scheme::Https)
    ));
    assert_eq!(
        HostIncomingRequest::authority(state, again(&request)).unwrap(),
        None
    );
    let body = state.consume(again(&request)).unwrap().unwrap();
    assert!(state.consume(again(&request)).unwrap().is_err());
    let stream = state.stream(again(&body)).unwrap().unwrap();
    assert!(state.stream(again(&body)).unwrap().is_err());

    assert_eq!(state.read(again(&stream), 0).ok().unwrap(), b"");
    assert_eq!(state.read(again(&stream), 2).ok().unwrap(), b"ab");
    assert_eq!(state.skip(again(&stream), u64::MAX).ok().unwrap(), 1);
    assert!(matches!(
        state.blocking_read(again(&stream), 1),
        Err(StreamFailure::Closed)
    ));

    // The stream is a child: its body cannot be finished before it is dropped.
    assert!(HostIncomingBody::finish(state, again(&body)).is_err());
    HostInputStream::drop(state, stream).unwrap();
    let trailers = HostIncomingBody::finish(state, body).unwrap();
    let taken = HostFutureTrailers::get(state, again(&trailers)).unwrap();
    assert!(matches!(taken, Some(Ok(Ok(None)))));
    let taken = HostFutureTrailers::get(state, trailers).unwrap();
    assert!(matches!(taken, Some(Err(()))));
}

/// Returns the request's body, as a function receives it.
fn body_of_request(state: &mut State<MemoryPlatform>) -> Resource<crate::http::IncomingBody> {
    let request = state
        .table
        .push(IncomingRequest::new(
            InvocationNumber::default(),
            RequestHead::default(),
        ))
        .unwrap();
    state.consume(request).unwrap().unwrap()
}

#[test]
fn bytes_are_read_as_they_arrive() {
    let mut function = function();
    let state = &mut function;
    state.platform.inner.request_body.clear();
    state.platform.inner.arriving = [b"first".to_vec(), b"second".to_vec()].into();
    state.platform.inner.request_trailers = vec![(b"x-t".to_vec(), b"1".to_vec())];
    let body = body_of_request(state);
    let stream = state.stream(again(&body)).unwrap().unwrap();
    let ready = HostInputStream::subscribe(state, again(&stream)).unwrap();
    assert!(!HostPollable::ready(state, again(&ready)).unwrap());
    assert_eq!(state.read(again(&stream), 100).ok().unwrap(), b"");
    assert_eq!(
        state.blocking_read(again(&stream), 100).ok().unwrap(),
        b"first"
    );
    HostInputStream::drop(state, stream).unwrap();
    // The rest is not wanted, but the trailers behind it are.
    let trailers = HostIncomingBody::finish(state, body).unwrap();
    assert!(
        HostFutureTrailers::get(state, again(&trailers))
            .unwrap()
            .is_none()
    );
    let there = HostFutureTrailers::subscribe(state, again(&trailers)).unwrap();
    state.block(there).unwrap();
    let got = HostFutureTrailers::get(state, trailers).unwrap();
    let Some(Ok(Ok(Some(fields)))) = got else {
        panic!("no trailers");
    };
    assert_eq!(
        HostFields::get(state, fields, "x-t".into()).unwrap(),
        [b"1".to_vec()]
    );
}

#[test]
fn the_path_to_the_function_is_a_field_unless_it_has_its_host() {
    let mut function = function();
    let mut fields_of = |script_name: &str| {
        let head = RequestHead {
            script_name: script_name.as_bytes().to_vec(),
            headers: vec![(b"a".to_vec(), b"1".to_vec())],
            ..RequestHead::default()
        };
        let request = IncomingRequest::new(InvocationNumber::default(), head);
        let request = function.table.push(request).unwrap();
        let mut entries = || {
            let fields = HostIncomingRequest::headers(&mut function, again(&request)).unwrap();
            HostFields::entries(&mut function, fields).unwrap()
        };
        let first = entries();
        assert_eq!(first, entries());
        first
    };
    let pair = |name: &str, value: &str| (name.to_string(), value.as_bytes().to_vec());
    let prefix = pair("x-forwarded-prefix", "/shop");
    assert_eq!(fields_of("/shop"), [pair("a", "1"), prefix]);
    assert_eq!(fields_of(""), [pair("a", "1")]);
}
