//! Outbound calls of a function.

use faasw_abi::channel::CALLS;

use super::*;
use crate::testing::MemoryAnswer;

#[test]
fn outgoing_requests_are_data_and_sending_one_is_denied() {
    let mut function = function();
    let state = &mut function;
    let headers = fields(state, &[("a", "1")]);
    let request: Resource<OutgoingRequest> = HostOutgoingRequest::new(state, headers).unwrap();
    let bad = Method::Other("no method".into());
    assert!(state.set_method(again(&request), bad).unwrap().is_err());
    state
        .set_method(again(&request), Method::Put)
        .unwrap()
        .unwrap();
    assert!(matches!(
        HostOutgoingRequest::method(state, again(&request)).unwrap(),
        Method::Put
    ));
    for (scheme, good) in [("ftp", true), ("a+b-c.9", true), ("9a", false), ("", false)] {
        let scheme = Some(Scheme::Other(scheme.into()));
        let set = state.set_scheme(again(&request), scheme).unwrap();
        assert_eq!(set.is_ok(), good);
    }
    for (authority, good) in [("a:1", true), ("[::1]", true), ("", false), ("a/b", false)] {
        let set = state
            .set_authority(again(&request), Some(authority.into()))
            .unwrap();
        assert_eq!(set.is_ok(), good, "{authority}");
    }
    for (path, good) in [
        ("/a?b=c", true),
        ("", true),
        ("/a b", false),
        ("/a#b", false),
    ] {
        let set = state
            .set_path_with_query(again(&request), Some(path.into()))
            .unwrap();
        assert_eq!(set.is_ok(), good, "{path}");
    }
    let body = HostOutgoingRequest::body(state, again(&request))
        .unwrap()
        .unwrap();
    assert!(
        HostOutgoingRequest::body(state, again(&request))
            .unwrap()
            .is_err()
    );
    assert!(write(state, &body, b"goes nowhere").is_ok());

    let options = HostRequestOptions::new(state).unwrap();
    state
        .set_connect_timeout(again(&options), Some(5))
        .unwrap()
        .unwrap();
    assert_eq!(state.connect_timeout(again(&options)).unwrap(), Some(5));
    assert_eq!(state.first_byte_timeout(again(&options)).unwrap(), None);

    let denied = outgoing_handler::Host::handle(state, request, Some(options));
    assert!(matches!(
        denied,
        Err(HttpFailure::Code(ErrorCode::HttpRequestDenied))
    ));
    assert!(HostOutgoingBody::finish(state, body, None).is_ok());
    assert!(state.table.is_empty());
    assert!(state.platform.inner.response_body.is_empty());
}

#[test]
fn a_body_that_lost_bytes_is_not_sent() {
    for (bytes, is_sent) in [(&b"while it is made"[..], false), (b"", true)] {
        let mut function = function();
        let state = &mut function;
        let headers = fields(state, &[]);
        let request: Resource<OutgoingRequest> = HostOutgoingRequest::new(state, headers).unwrap();
        let authority = Some("a.example".into());
        let set = state.set_authority(again(&request), authority).unwrap();
        assert!(set.is_ok());
        let body = HostOutgoingRequest::body(state, again(&request))
            .unwrap()
            .unwrap();
        if !bytes.is_empty() {
            assert!(write(state, &body, bytes).is_ok());
        }
        // From here on the function may make calls.
        let calls = &mut state.platform.inner.calls;
        (calls.open, calls.ring) = (CALLS, 112 << 10);
        calls.answers.push_back(MemoryAnswer::default());
        let sent = outgoing_handler::Host::handle(state, request, None);
        match sent {
            Ok(_) => assert!(is_sent),
            Err(HttpFailure::Code(ErrorCode::InternalError(Some(_)))) => assert!(!is_sent),
            Err(_) => panic!("it fails in another way"),
        }
        assert_eq!(state.platform.inner.calls.asked.len(), usize::from(is_sent));
    }
}
