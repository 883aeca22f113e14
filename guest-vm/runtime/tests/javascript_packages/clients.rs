//! The clients of Stripe and OpenAI.

use crate::support::calls;
use crate::{answer, body, called, json, post, run, sent, text};

const CLIENTS: &str = "clients.mjs";

#[test]
fn the_stripe_client_works() {
    let customer = r#"{"id": "cus_1", "object": "customer"}"#;
    // The client repeats a request that the server answers with 500, with the same key.
    let answers = vec![json(500, "{}"), json(200, customer)];
    let (told, asked) = called(CLIENTS, "/stripe/create", answers);
    assert_eq!(told, r#"["cus_1","req_1"]"#);
    assert_eq!(asked.len(), 2);
    for call in &asked {
        assert_eq!(
            calls::line(call),
            "POST https://api.stripe.com/v1/customers"
        );
        assert_eq!(body(call), "email=a%40b.example&metadata[plan]=%C3%BC");
        assert_eq!(sent(call, "authorization"), "Bearer sk_test_1");
        assert_eq!(sent(call, "idempotency-key"), "once");
    }
    let page = |ids: &[&str], more: bool| {
        let data: Vec<String> = ids
            .iter()
            .map(|id| format!(r#"{{"id": "{id}"}}"#))
            .collect();
        let data = data.join(",");
        let url = "/v1/customers";
        let list = format!(
            r#"{{"object": "list", "url": "{url}", "has_more": {more}, "data": [{data}]}}"#
        );
        json(200, &list)
    };
    let answers = vec![page(&["a", "b"], true), page(&["c"], false)];
    let (told, asked) = called(CLIENTS, "/stripe/list", answers);
    assert_eq!(told, r#"["a","b","c"]"#);
    assert!(
        calls::line(&asked[1]).contains("starting_after=b"),
        "{}",
        calls::line(&asked[1])
    );
    let declined = r#"{"error": {"type": "card_error", "code": "card_declined", "message": "no"}}"#;
    let (told, _) = called(CLIENTS, "/stripe/declined", vec![json(402, declined)]);
    assert_eq!(told, r#"[true,"StripeCardError","card_declined",402,"no"]"#);
    let event = r#"{"id": "evt_1", "object": "event", "type": "charge.ok"}"#;
    let call = post("/stripe/webhook", "application/json", event);
    assert_eq!(
        text(&run(CLIENTS, call, Vec::new())),
        r#"["charge.ok","StripeSignatureVerificationError"]"#
    );
}

#[test]
fn the_openai_client_works() {
    let response = r#"{"id": "r", "object": "response", "output": [{"type": "message",
        "role": "assistant", "content": [{"type": "output_text", "text": "ü"}]}]}"#;
    let (told, asked) = called(CLIENTS, "/openai/response", vec![json(200, response)]);
    assert_eq!(told, r#"["ü","req_1"]"#);
    assert_eq!(
        calls::line(&asked[0]),
        "POST https://api.openai.com/v1/responses"
    );
    assert_eq!(body(&asked[0]), r#"{"model":"m","input":"Say ü"}"#);
    assert_eq!(sent(&asked[0], "authorization"), "Bearer sk-1");
    // Events are cut anywhere.
    let chunk =
        |word: &str| format!(r#"data: {{"choices": [{{"delta": {{"content": "{word}"}}}}]}}"#);
    let events = format!("{}\n\n{}\n\ndata: [DONE]\n\n", chunk("one"), chunk("two"));
    let pieces = [&events[..17], &events[17..80], &events[80..]];
    let fields = [("content-type", "text/event-stream")];
    let (told, _) = called(
        CLIENTS,
        "/openai/stream",
        vec![answer(200, &fields, &pieces)],
    );
    assert_eq!(told, r#"["one","two"]"#);
    let file = json(200, r#"{"id": "file-1", "object": "file"}"#);
    let (told, asked) = called(CLIENTS, "/openai/upload", vec![file]);
    assert_eq!(told, r#""file-1""#);
    assert!(sent(&asked[0], "content-type").starts_with("multipart/form-data; boundary="));
    let uploaded = body(&asked[0]);
    for part in [
        "name=\"purpose\"\r\n\r\nfine-tune\r\n",
        "filename=\"train.jsonl\"",
        "\r\n\r\n{}\n\r\n",
    ] {
        assert!(uploaded.contains(part), "{part}: {uploaded}");
    }
    let missing = r#"{"error": {"message": "no such model", "code": "model_not_found"}}"#;
    let (told, _) = called(CLIENTS, "/openai/refused", vec![json(404, missing)]);
    assert_eq!(told, r#"[true,404,"model_not_found","404 no such model"]"#);
}
