//! Fields, and their limits and those of resources.

use super::*;

#[test]
fn fields_keep_their_order_and_ignore_case() {
    let mut function = function();
    let list = fields(&mut function, &[("A", "1"), ("b", "2"), ("a", "3")]);
    let state = &mut function;
    let values = HostFields::get(state, again(&list), "a".into()).unwrap();
    assert_eq!(values, [b"1", b"3"]);
    assert!(HostFields::has(state, again(&list), "B".into()).unwrap());
    assert!(!HostFields::has(state, again(&list), "b b".into()).unwrap());
    let set = HostFields::set(state, again(&list), "A".into(), vec![b"4".to_vec()]);
    assert!(told(set).is_none());
    let entries = HostFields::entries(state, again(&list)).unwrap();
    let names: Vec<String> = entries.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["b", "a"]);
    assert!(told(HostFields::delete(state, again(&list), "B".into())).is_none());
    assert!(!HostFields::has(state, list, "b".into()).unwrap());
}

#[test]
fn a_message_has_one_content_length() {
    let mut function = function();
    let list = fields(&mut function, &[("content-length", "3")]);
    let state = &mut function;
    let invalid = |result| matches!(told(result), Some(HeaderError::InvalidSyntax));
    let name = || "Content-Length".to_string();
    assert!(invalid(state.append(again(&list), name(), b"3".to_vec())));
    let two = vec![b"1".to_vec(), b"2".to_vec()];
    assert!(invalid(HostFields::set(state, again(&list), name(), two)));
    let word = vec![b"many".to_vec()];
    assert!(invalid(HostFields::set(state, again(&list), name(), word)));
    let one = vec![b"4".to_vec()];
    assert!(told(HostFields::set(state, list, name(), one)).is_none());
}

#[test]
fn te_takes_trailers_and_nothing_else() {
    let mut function = function();
    let list = fields(&mut function, &[("TE", "trailers")]);
    let state = &mut function;
    let values = HostFields::get(state, again(&list), "te".into()).unwrap();
    assert_eq!(values, [b"trailers"]);
    let forbidden = |result| matches!(told(result), Some(HeaderError::Forbidden));
    let other = || b"trailers, gzip".to_vec();
    assert!(forbidden(state.append(again(&list), "te".into(), other())));
    let set = HostFields::set(state, again(&list), "te".into(), vec![other()]);
    assert!(forbidden(set));
    let unchanged = HostFields::get(state, again(&list), "te".into()).unwrap();
    assert_eq!(unchanged, [b"trailers"]);
    assert!(told(HostFields::delete(state, again(&list), "te".into())).is_none());
    assert!(!HostFields::has(state, list, "te".into()).unwrap());
}

#[test]
fn a_messages_headers_are_immutable_and_their_clone_is_not() {
    let mut function = function();
    let response = response(&mut function, &[("a", "1")]);
    let state = &mut function;
    let headers = HostOutgoingResponse::headers(state, response).unwrap();
    let immutable = state.append(again(&headers), "b".into(), b"2".to_vec());
    assert!(matches!(told(immutable), Some(HeaderError::Immutable)));
    let copy = HostFields::clone(state, again(&headers)).unwrap();
    assert!(told(state.append(again(&copy), "b".into(), b"2".to_vec())).is_none());
    assert!(!HostFields::has(state, headers, "b".into()).unwrap());
    assert!(HostFields::has(state, copy, "b".into()).unwrap());
}

#[test]
fn fields_are_bounded_one_by_one_and_in_all() {
    let mut function = function();
    let large = || vec![b'x'; 60 << 10];
    let list = fields(&mut function, &[]);
    let state = &mut function;
    for name in ["a", "b"] {
        assert!(told(state.append(again(&list), name.into(), large())).is_none());
    }
    let third = state.append(list, "c".into(), large());
    assert!(matches!(third, Err(HeaderFailure::Trap(_))));

    let mut made = 0;
    while HostFields::from_list(state, vec![("a".into(), large())]).is_ok() {
        made += 1;
        assert!(made < 1_000, "never refused");
    }
    assert!(made > 100);
}

#[test]
fn resources_are_bounded() {
    let mut function = function();
    let mut made = 0;
    while HostFields::new(&mut function).is_ok() {
        made += 1;
        assert!(made <= 16 << 10, "never refused");
    }
    assert_eq!(made, 16 << 10);
}
