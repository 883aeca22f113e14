//! Looks words up in an index that takes some 100 ms to build: when the function is deployed by
//! `--init prepare`, else with the first request that needs it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use wasip2::exports::http::incoming_handler::Guest as Handler;
use wasip2::http::types::{Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam};

wit_bindgen::generate!({
    inline: "
        package example:index;

        world index {
            /// Builds the index.
            export prepare: func();
        }
    ",
});

/// Where each word stands. No `HashMap`: its keys are drawn at random, which a deployment
/// must not do for all requests.
static INDEX: OnceLock<BTreeMap<String, Vec<u32>>> = OnceLock::new();

const WORDS: u32 = 360_000;

/// The text is made up; a real function would `include_str!` one.
fn word(place: u32) -> String {
    let mut number = (place.wrapping_mul(2_654_435_761) >> 7) % 40_009;
    let mut word = String::new();
    for _ in 0..4 {
        word.push(char::from(b"bdfgklmnprstvz"[(number % 14) as usize]));
        word.push(char::from(b"aeiou"[(number / 14 % 5) as usize]));
        number = number / 14 + 7;
    }
    word
}

fn index() -> &'static BTreeMap<String, Vec<u32>> {
    INDEX.get_or_init(|| {
        let mut index = BTreeMap::<_, Vec<_>>::new();
        for place in 0..WORDS {
            index.entry(word(place)).or_default().push(place);
        }
        index
    })
}

struct Index;

impl Guest for Index {
    fn prepare() {
        index();
    }
}

export!(Index);

impl Handler for Index {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let path = request.path_with_query().unwrap_or_default();
        let asked = path.trim_start_matches('/');
        let places = index().get(asked).map_or(0, Vec::len);
        let text = format!("{asked} stands in {places} places of {WORDS}\n");

        let response = OutgoingResponse::new(Fields::new());
        let body = response.body().expect("the first use of its body");
        ResponseOutparam::set(out, Ok(response));
        {
            let stream = body.write().expect("the first use of its stream");
            stream.blocking_write_and_flush(text.as_bytes()).expect("a client");
        }
        OutgoingBody::finish(body, None).expect("no length was promised");
    }
}

wasip2::http::proxy::export!(Index);
