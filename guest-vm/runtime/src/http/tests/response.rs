//! Responses and their bodies.

use super::*;

#[test]
fn a_whole_response_reaches_the_platform() {
    let mut function = function();
    let response = response(&mut function, &[("content-length", "5"), ("x", "y")]);
    let state = &mut function;
    assert!(
        state
            .set_status_code(again(&response), 1000)
            .unwrap()
            .is_err()
    );
    assert!(
        state
            .set_status_code(again(&response), 99)
            .unwrap()
            .is_err()
    );
    state
        .set_status_code(again(&response), 201)
        .unwrap()
        .unwrap();
    let body = HostOutgoingResponse::body(state, again(&response))
        .unwrap()
        .unwrap();
    assert!(
        HostOutgoingResponse::body(state, again(&response))
            .unwrap()
            .is_err()
    );
    set(state, Ok(response));
    assert!(write(state, &body, b"hello").is_ok());
    let trailers = fields(state, &[("t", "u")]);
    assert!(HostOutgoingBody::finish(state, body, Some(trailers)).is_ok());
    conclude(state).unwrap();
    let head = state.platform.inner.response_head.clone().unwrap();
    assert_eq!(head.status, 201);
    assert_eq!(head.headers.len(), 2);
    let trailers = state.platform.inner.finished.clone().unwrap();
    assert_eq!(trailers, [(b"t".to_vec(), b"u".to_vec())]);
    assert_eq!(state.platform.inner.response_body, b"hello");
}

#[test]
fn bytes_written_before_the_response_is_set_wait_for_it() {
    let mut function = function();
    let state = &mut function;
    let other = response(state, &[]);
    let other_body = HostOutgoingResponse::body(state, again(&other))
        .unwrap()
        .unwrap();
    assert!(write(state, &other_body, b"never sent").is_ok());
    let sent = response(state, &[]);
    let body = HostOutgoingResponse::body(state, again(&sent))
        .unwrap()
        .unwrap();
    assert!(write(state, &body, b"early").is_ok());
    assert!(HostOutgoingBody::finish(state, body, None).is_ok());
    assert!(state.platform.inner.response_body.is_empty());
    set(state, Ok(sent));
    HostOutgoingResponse::drop(state, other).unwrap();
    conclude(state).unwrap();
    assert_eq!(state.platform.inner.response_body, b"early");
    assert_eq!(state.platform.inner.finished, Some(vec![]));
}

#[test]
fn waiting_bytes_are_bounded_and_the_writer_is_told() {
    let mut function = function();
    let state = &mut function;
    let response = response(state, &[]);
    let body = HostOutgoingResponse::body(state, again(&response))
        .unwrap()
        .unwrap();
    let stream = HostOutgoingBody::write(state, again(&body))
        .unwrap()
        .unwrap();
    let ready = HostOutputStream::subscribe(state, again(&stream)).unwrap();
    let mut written = 0;
    loop {
        let permit = state.check_write(again(&stream)).ok().unwrap();
        if permit == 0 {
            break;
        }
        assert!(HostPollable::ready(state, again(&ready)).unwrap());
        let bytes = vec![0; usize::try_from(permit).unwrap()];
        assert!(HostOutputStream::write(state, again(&stream), bytes).is_ok());
        written += permit;
    }
    assert_eq!(written, 1 << 20);
    assert!(!HostPollable::ready(state, again(&ready)).unwrap());
    // No other event is possible while the function waits.
    let forever = state.poll(vec![again(&ready)]).unwrap_err();
    assert!(forever.to_string().contains("never happen"));
    set(state, Ok(response));
    // The client now reads the bytes.
    state.block(again(&ready)).unwrap();
    assert!(HostPollable::ready(state, ready).unwrap());
}

#[test]
fn writing_more_than_permitted_traps() {
    let mut function = function();
    let state = &mut function;
    let response = response(state, &[]);
    let body = HostOutgoingResponse::body(state, again(&response))
        .unwrap()
        .unwrap();
    let stream = HostOutgoingBody::write(state, body).unwrap().unwrap();
    let traps = |result| matches!(result, Err(StreamFailure::Trap(_)));
    let too_much = vec![0; (64 << 10) + 1];
    assert!(traps(HostOutputStream::write(
        state,
        again(&stream),
        too_much
    )));
    let too_much = vec![0; 4097];
    assert!(traps(
        state.blocking_write_and_flush(again(&stream), too_much)
    ));
    assert!(traps(state.write_zeroes(again(&stream), u64::MAX)));
    assert!(traps(
        state.blocking_write_zeroes_and_flush(again(&stream), 4097)
    ));
    assert!(state.write_zeroes(stream, 5).is_ok());
}

#[test]
fn a_body_longer_than_declared_fails_and_one_shorter_does_not_finish() {
    let mut function = function();
    let state = &mut function;
    let sent = response(state, &[("content-length", "3")]);
    let body = HostOutgoingResponse::body(state, again(&sent))
        .unwrap()
        .unwrap();
    set(state, Ok(sent));
    let Err(StreamFailure::Failed(error)) = write(state, &body, b"four") else {
        panic!("a long write is accepted");
    };
    let error = state.table.push(error).unwrap();
    assert!(matches!(
        state.http_error_code(error).unwrap(),
        Some(ErrorCode::HttpResponseBodySize(Some(3)))
    ));
    let finished = HostOutgoingBody::finish(state, body, None);
    assert!(matches!(
        finished,
        Err(HttpFailure::Code(ErrorCode::HttpResponseBodySize(Some(0))))
    ));
    let failure = conclude(state).unwrap_err();
    assert_eq!(failure.outcome, Outcome::BadResponse);
}

#[test]
fn a_body_that_is_dropped_is_a_bad_response_and_one_left_open_ends_with_the_handler() {
    for (dropped, length, is_whole) in [
        (true, None, false),
        (false, None, true),
        (false, Some("4"), true),
        (false, Some("5"), false),
    ] {
        let mut function = function();
        let state = &mut function;
        let headers: Vec<_> = length
            .map(|length| ("content-length", length))
            .into_iter()
            .collect();
        let sent = response(state, &headers);
        let body = HostOutgoingResponse::body(state, again(&sent))
            .unwrap()
            .unwrap();
        set(state, Ok(sent));
        assert!(write(state, &body, b"half").is_ok());
        if dropped {
            HostOutgoingBody::drop(state, body).unwrap();
        }
        let concluded = conclude(state);
        assert_eq!(state.platform.inner.finished.is_some(), is_whole);
        if is_whole {
            concluded.unwrap();
            continue;
        }
        let failure = concluded.unwrap_err();
        assert_eq!(failure.outcome, Outcome::BadResponse);
        assert!(failure.report.contains("4"), "{failure}");
    }
}

#[test]
fn a_response_without_a_body_is_whole() {
    let mut function = function();
    let sent = response(&mut function, &[]);
    set(&mut function, Ok(sent));
    conclude(&mut function).unwrap();
    assert_eq!(function.platform.inner.response_head.unwrap().status, 200);
}

#[test]
fn a_declared_length_without_a_body_passes_only_where_http_has_it() {
    for (is_head, status, passes) in [
        (true, 200, true),
        (false, 204, true),
        (false, 205, true),
        (false, 304, true),
        (false, 200, false),
    ] {
        let mut function = function();
        let state = &mut function;
        if is_head {
            state.invocation.begin(&RequestHead {
                method: b"HEAD".to_vec(),
                ..RequestHead::default()
            });
        }
        let sent = response(state, &[("content-length", "3")]);
        state
            .set_status_code(again(&sent), status)
            .unwrap()
            .unwrap();
        set(state, Ok(sent));
        assert_eq!(conclude(state).is_ok(), passes, "{is_head} {status}");
        assert_eq!(state.platform.inner.response_head.is_some(), passes);
    }
}

#[test]
fn a_response_without_content_may_announce_a_length_and_finish_an_empty_body() {
    // The status may be set before the body is made, after that, or repeatedly.
    for (statuses_before, statuses_after, finishes) in [
        (&[304][..], &[][..], true),
        (&[204], &[], true),
        (&[205], &[], true),
        (&[], &[304], true),
        (&[304], &[200], false),
        (&[200], &[304], true),
        (&[], &[], false),
    ] {
        let mut function = function();
        let state = &mut function;
        let sent = response(state, &[("content-length", "1234"), ("etag", "\"v7\"")]);
        for status in statuses_before {
            let set = state.set_status_code(again(&sent), *status);
            set.unwrap().unwrap();
        }
        let body = HostOutgoingResponse::body(state, again(&sent));
        let body = body.unwrap().unwrap();
        for status in statuses_after {
            let set = state.set_status_code(again(&sent), *status);
            set.unwrap().unwrap();
        }
        set(state, Ok(sent));
        let finished = HostOutgoingBody::finish(state, body, None).is_ok();
        let case = (statuses_before, statuses_after);
        assert_eq!(finished, finishes, "{case:?}");
        assert_eq!(conclude(state).is_ok(), finishes, "{case:?}");
        let head = state.platform.inner.response_head.clone().unwrap();
        // The node decides which fields a client receives.
        assert_eq!(head.headers.len(), 2, "{case:?}");
    }
}

#[test]
fn an_error_code_is_told_by_name() {
    let mut function = function();
    set(&mut function, Err(ErrorCode::DestinationUnavailable));
    let failure = conclude(&mut function).unwrap_err();
    assert_eq!(failure.outcome, Outcome::FunctionError);
    assert!(
        failure.report.contains("destination-unavailable"),
        "{failure}"
    );
}

#[test]
fn a_dropped_outparam_is_no_response() {
    let mut function = function();
    let outparam = function.table.push(ResponseOutparam).unwrap();
    HostResponseOutparam::drop(&mut function, outparam).unwrap();
    let failure = conclude(&mut function).unwrap_err();
    assert_eq!(failure.outcome, Outcome::NoResponse);
}

#[test]
fn an_empty_poll_list_traps() {
    assert!(function().poll(Vec::new()).is_err());
}

#[test]
fn a_full_response_makes_the_writer_wait_for_the_client() {
    let mut function = function();
    let state = &mut function;
    state.platform.inner.ring = 6;
    let sent = response(state, &[]);
    let body = HostOutgoingResponse::body(state, again(&sent))
        .unwrap()
        .unwrap();
    let stream = HostOutgoingBody::write(state, again(&body))
        .unwrap()
        .unwrap();
    set(state, Ok(sent));
    assert_eq!(state.check_write(again(&stream)).ok().unwrap(), 6);
    let bytes = b"0123456789abcdef";
    assert!(
        state
            .blocking_write_and_flush(again(&stream), bytes.to_vec())
            .is_ok()
    );
    // Two waits for space, and the flush at the end.
    assert_eq!(state.platform.inner.seen, [6, 12, 16]);
    assert_eq!(state.check_write(again(&stream)).ok().unwrap(), 2);
    assert!(HostOutputStream::write(state, again(&stream), b"gh".to_vec()).is_ok());
    let room = HostOutputStream::subscribe(state, again(&stream)).unwrap();
    assert!(!HostPollable::ready(state, again(&room)).unwrap());
    state.block(again(&room)).unwrap();
    assert_eq!(state.check_write(again(&stream)).ok().unwrap(), 6);
    assert_eq!(state.platform.inner.response_body, b"0123456789abcdefgh");
}
