//! Functions that use key-value stores: the store's answers, and what a function sends to it.

use faasw_abi::store::{Answer, LENGTH_BYTES, Operation, Request, length};
use faasw_runtime::function::Ready;
use faasw_runtime::testing::MemoryPlatform;

use super::scripts::{ScriptEngine, asked};

/// Has a function answer its request while the store sends these answers. Returns the text of the
/// response, and what the function sent to the store. Fails if an answer is left over.
#[track_caller]
pub fn answered(
    ready: &mut Ready<MemoryPlatform>,
    request: faasw_abi::wire::RequestHead,
    answers: &[Answer<'_>],
) -> (String, Vec<u8>) {
    let records = answers.iter();
    let records = records.flat_map(|answer| answer.encode().unwrap());
    ready.platform_mut().store_answers = Some(records.collect());
    ready
        .handle(request)
        .unwrap_or_else(|failure| panic!("{}", failure.report));
    let platform = ready.platform();
    let is_empty = platform.store_answers.as_ref().unwrap().is_empty();
    assert!(is_empty, "answers of the store are left over");
    let text = String::from_utf8(platform.response_body.clone()).unwrap();
    (text, platform.store_asked.clone())
}

/// Has a script in the file `name` answer a request, as [`answered`] does. The script is granted
/// the store `stock`.
#[track_caller]
pub fn script_answered(
    engine: &ScriptEngine,
    (name, script): (&str, &str),
    answers: &[Answer<'_>],
) -> (String, Vec<u8>) {
    let call = asked("/").store("stock");
    let mut ready = engine
        .init(&[(name, script.as_bytes())], &call)
        .unwrap_or_else(|failure| panic!("{}", failure.report));
    answered(&mut ready, call.request, answers)
}

/// Decodes what a function sent to the store.
pub fn records(mut asked: &[u8]) -> Vec<Request<'_>> {
    let mut requests = Vec::new();
    while let Some((announced, rest)) = asked.split_first_chunk::<LENGTH_BYTES>() {
        let (record, next) = rest.split_at(length(*announced).unwrap());
        requests.push(Request::decode(record).unwrap());
        asked = next;
    }
    requests
}

/// Asserts that a function sent these operations, all on its own store.
#[track_caller]
pub fn assert_operations(sent: &[u8], operations: &[Operation<'_>], what: &str) {
    let requests = records(sent);
    let own = requests.iter().all(|request| request.store == "default");
    assert!(own, "{requests:?}");
    let sent: Vec<&Operation<'_>> = requests.iter().map(|request| &request.operation).collect();
    assert_eq!(sent, operations.iter().collect::<Vec<_>>(), "{what}");
}

/// Returns the answer to a read of one key.
pub fn value(text: &str) -> Answer<'_> {
    Answer::Values(vec![Some(text.as_bytes())])
}
