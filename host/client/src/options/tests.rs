use std::time::Duration;

use super::access::{MOST_OUTBOUND, MOST_SECRETS, MOST_STORES};
use super::freeze::LARGEST_WARM_UPS;
use super::inputs::LONGEST_KEY;
use super::*;
use faasw_common::options::{OPTIONS, OptionDefinition, OptionForm};

#[test]
fn unset_options_follow_the_node() {
    let options = FunctionOptions::default();
    assert_eq!(options.memory_or(7), 7);
    assert_eq!(options.own_time(TimeLimit::CpuTime), None);
    assert_eq!(options.check(), Ok(()));
    let read: FunctionOptions = serde_json::from_str("{}").unwrap();
    assert_eq!(read, options);
}

#[test]
fn hosts_round_trip_through_the_registry_and_are_optional() {
    let host = |name| HostName::new(name).unwrap();
    let options = FunctionOptions::default()
        .host(host("B.test"))
        .host(host("a.test"))
        .host(host("b.test."));
    let json = serde_json::to_string(&options).unwrap();
    assert!(json.contains(r#""hosts":["a.test","b.test"]"#), "{json}");
    let read: FunctionOptions = serde_json::from_str(&json).unwrap();
    assert_eq!(read, options);
    let none = serde_json::to_string(&FunctionOptions::default()).unwrap();
    assert!(!none.contains("hosts"), "{none}");
}

#[test]
fn stores_round_trip_through_the_registry_and_are_bounded() {
    let store = |name: &str| StoreName::new(name).unwrap();
    let options = FunctionOptions::default()
        .store(store("b"))
        .store(store("a"));
    let json = serde_json::to_string(&options.store(store("b"))).unwrap();
    assert!(json.contains(r#""stores":["a","b"]"#), "{json}");
    let none = serde_json::to_string(&FunctionOptions::default()).unwrap();
    assert!(!none.contains("stores"), "{none}");
    let many = (0..=MOST_STORES).map(|number| store(&format!("s{number}")));
    let many = many.fold(FunctionOptions::default(), FunctionOptions::store);
    assert_eq!(many.check(), Err(OptionsError::Stores(MOST_STORES + 1)));
}

#[test]
fn grants_round_trip_through_the_registry_and_are_bounded() {
    let grant = |text: &str| Outbound::new(text).unwrap();
    let options = FunctionOptions::default()
        .allow_outbound(grant("https://b.test"))
        .allow_outbound(grant("http://a.test:8080"))
        .allow_outbound(grant("https://B.test:443"));
    let json = serde_json::to_string(&options).unwrap();
    let grants = r#""outbound":["http://a.test:8080","https://b.test"]"#;
    assert!(json.contains(grants), "{json}");
    assert_eq!(
        serde_json::from_str::<FunctionOptions>(&json).unwrap(),
        options
    );
    let none = serde_json::to_string(&FunctionOptions::default()).unwrap();
    assert!(!none.contains("outbound"), "{none}");
    let many = (0..=MOST_OUTBOUND).map(|number| grant(&format!("https://h{number}.test")));
    let many = many.fold(FunctionOptions::default(), FunctionOptions::allow_outbound);
    assert_eq!(many.check(), Err(OptionsError::Outbound(MOST_OUTBOUND + 1)));
}

#[test]
fn secrets_round_trip_through_the_registry_and_are_bounded() {
    let secret = |text: &str| SecretName::new(text).unwrap();
    let options = FunctionOptions::default()
        .secret(secret("b"))
        .secret(secret("a"));
    let json = serde_json::to_string(&options.clone().secret(secret("b"))).unwrap();
    assert!(json.contains(r#""secrets":["a","b"]"#), "{json}");
    assert_eq!(
        serde_json::from_str::<FunctionOptions>(&json).unwrap(),
        options
    );
    let none = serde_json::to_string(&FunctionOptions::default()).unwrap();
    assert!(!none.contains("secrets"), "{none}");
    let both = options.config("a", "x").check();
    assert_eq!(both, Err(OptionsError::SecretInConfiguration(secret("a"))));
    let host = |text: &str| Outbound::new(text).unwrap();
    let (api, others) = (host("https://api.test"), host("https://*.api.test:8443"));
    let bound = FunctionOptions::default()
        .bind_secret(secret("a"), api.clone())
        .bind_secret(secret("a"), others);
    let json = serde_json::to_string(&bound).unwrap();
    let expected = r#""bound_secrets":{"a":["https://*.api.test:8443","https://api.test"]}"#;
    assert!(json.contains(expected), "{json}");
    let back: FunctionOptions = serde_json::from_str(&json).unwrap();
    assert_eq!((back.check(), &back), (Ok(()), &bound));
    let both = bound.clone().secret(secret("a")).check();
    assert_eq!(both, Err(OptionsError::SecretReadAndBound(secret("a"))));
    let both = bound.clone().config("a", "x").check();
    assert_eq!(both, Err(OptionsError::SecretInConfiguration(secret("a"))));
    for open in [
        "http://api.test",
        "*://api.test:443",
        "https://*",
        "https://0.0.0.0/0",
        "https://[::]/0",
    ] {
        let refused = bound.clone().bind_secret(secret("b"), host(open)).check();
        assert_eq!(refused, Err(OptionsError::SecretBound(host(open))));
    }
    let many = (1..=MOST_SECRETS).map(|number| secret(&format!("s{number}")));
    let many = many.fold(bound, FunctionOptions::secret);
    assert_eq!(many.check(), Err(OptionsError::Secrets(MOST_SECRETS + 1)));
    let many = (0..=MOST_SECRETS).map(|number| secret(&format!("s{number}")));
    let many = many.fold(FunctionOptions::default(), FunctionOptions::secret);
    assert_eq!(many.check(), Err(OptionsError::Secrets(MOST_SECRETS + 1)));
}

#[test]
fn the_last_value_of_a_variable_counts() {
    let options = FunctionOptions::default()
        .env("A", "1")
        .env("B", "2")
        .env("A", "3");
    let expected = [("B".into(), "2".into()), ("A".into(), "3".into())];
    assert_eq!(options.environment(), expected);
}

#[test]
fn the_last_value_of_a_key_counts_and_keys_are_optional() {
    let options = FunctionOptions::default()
        .config("b", "1")
        .config("a", "2=\n\0")
        .config("b", "3");
    let expected = [("a", "2=\n\0"), ("b", "3")];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(*options.configuration(), BTreeMap::from(expected));
    assert_eq!(options.check(), Ok(()));
    let json = serde_json::to_string(&options).unwrap();
    let read: FunctionOptions = serde_json::from_str(&json).unwrap();
    assert_eq!(read, options);
    let none = serde_json::to_string(&FunctionOptions::default()).unwrap();
    assert!(!none.contains("configuration"), "{none}");
}

#[test]
fn a_configuration_is_bounded() {
    let default = FunctionOptions::default;
    let longest = "k".repeat(LONGEST_KEY);
    assert_eq!(default().config(&longest, "").check(), Ok(()));
    for key in ["", "a=b", "a\nb", "a\0", &(longest.clone() + "k")] {
        let refused = default().config(key, "x").check();
        assert_eq!(refused, Err(OptionsError::Key(key.to_owned())));
    }
    let largest = "v".repeat(CONFIGURATION_BYTES - 2);
    let options = default().config("a", largest).config("b", "");
    assert_eq!(options.check(), Ok(()));
    let larger = options.config("b", "x");
    let expected = OptionsError::Configuration(CONFIGURATION_BYTES + 1);
    assert_eq!(larger.check(), Err(expected));
}

#[test]
fn impossible_options_are_refused() {
    let default = FunctionOptions::default;
    for name in ["", "A=B", "A\0"] {
        assert!(matches!(
            default().env(name, "x").check(),
            Err(OptionsError::Environment(_))
        ));
    }
    assert!(default().env("A", "x\0").check().is_err());
    // A value in the place of a name is not repeated, nor is a long text.
    let mistaken = default().env("A=sk_live", "").check().unwrap_err();
    assert!(!mistaken.to_string().contains("sk_live"), "{mistaken}");
    let long = "a".repeat(50_000) + "\0";
    for options in [
        default().env(long.clone(), ""),
        default().config(long.clone(), ""),
        default().argument(long.clone()),
        default().files_at(long.clone()),
        default().freeze_at(long.clone()),
    ] {
        let error = options.check().unwrap_err().to_string();
        assert!(error.len() < 500, "{error}");
    }
    assert_eq!(default().memory(1).check(), Err(OptionsError::Memory(1)));
    assert_eq!(
        default().concurrency(0).check(),
        Err(OptionsError::Concurrency)
    );
    let polling = |microseconds| default().poll(Duration::from_micros(microseconds));
    assert_eq!(polling(10_000).check(), Ok(()));
    assert_eq!(polling(10_001).check(), Err(OptionsError::Poll));
    let warm_up = || WarmUpRequest::new("/").unwrap();
    let early = default()
        .warm_up(warm_up())
        .freeze(FreezePolicy::BeforeInit);
    assert!(matches!(early.check(), Err(OptionsError::WarmUps(_))));
    let path = "/".to_owned() + &"a".repeat(LARGEST_WARM_UPS - 2);
    let large = default().warm_up(WarmUpRequest::new(path).unwrap());
    assert_eq!(large.clone().warm_up(warm_up()).check(), Ok(()));
    let larger = large.warm_up(warm_up()).warm_up(warm_up());
    assert!(matches!(larger.check(), Err(OptionsError::WarmUps(_))));
    for value in [Duration::ZERO, Duration::from_secs(86_401)] {
        let limit = "idle-guest";
        assert_eq!(
            default().idle_guest(value).check(),
            Err(OptionsError::TimeLimit { limit, value })
        );
    }
    assert_eq!(default().source("oci://a.test/b").check(), Ok(()));
    for source in ["", "a\nb", &"a".repeat(LONGEST_SOURCE + 1)] {
        assert_eq!(default().source(source).check(), Err(OptionsError::Source));
    }
}

fn option(name: &str, text: &str) -> Result<OptionValue, String> {
    OptionValue::new(name, text)
}

#[test]
fn options_survive_json_and_texts() {
    let secret = |text: &str| SecretName::new(text).unwrap();
    let outbound = |text: &str| Outbound::new(text).unwrap();
    let store = |text: &str| StoreName::new(text).unwrap();
    let warm_up = |text: &str| WarmUpRequest::new(text).unwrap();
    for options in [
        FunctionOptions::default(),
        FunctionOptions::default()
            .env("A", "\u{e4}=&%+ \n\x7f")
            .env("B", "")
            .config("a.b c&d\u{e9}", "x=y&z\n%")
            .config("empty", "")
            .memory(1 << 30)
            .first_byte(Duration::from_micros(1_500_001))
            .cpu_time(Duration::from_secs(1))
            .idle_client(Duration::from_secs(2))
            .idle_guest(Duration::from_secs(3))
            .total_time(Duration::from_secs(4))
            .concurrency(3)
            .poll(Duration::from_micros(1500))
            .freeze(FreezePolicy::BeforeInit),
        FunctionOptions::default()
            .store(store("users"))
            .store(store("Stock_2.old-"))
            .host(HostName::new("a.test").unwrap())
            .allow_outbound(outbound("http://*.internal:8080")),
        FunctionOptions::default()
            .secret(secret("api_key"))
            .secret(secret("a b&\u{e9}"))
            .bind_secret(secret("other"), outbound("https://api.example.com"))
            .bind_secret(secret("other"), outbound("https://*.example.com:8443")),
        FunctionOptions::default().poll(Duration::ZERO),
        FunctionOptions::default().init("a:b/c@1.0.0#d&e"),
        FunctionOptions::default()
            .argument("--a=b&c")
            .argument("")
            .files_at("/usr/lib/\u{e9}")
            .freeze_at("/usr/lib/\u{e9}/a&b"),
        FunctionOptions::default()
            .warm_up(warm_up("/b"))
            .warm_up(warm_up("PUT /a?b=%26&c\r\nx: y\r\n\r\n{\"\u{e9}\": 1}")),
    ] {
        let values = options.values();
        assert_eq!(FunctionOptions::from_values(&values).unwrap(), options);
        for value in values {
            assert_eq!(option(value.name(), &value.text).unwrap(), value);
        }
        let options = options.source("oci://reg.test/a@sha256:12");
        let json = options.to_json();
        assert!(!json.contains(char::is_control), "{json}");
        assert_eq!(FunctionOptions::from_json(json.as_bytes()), Ok(options));
    }
}

#[test]
fn texts_of_options_are_those_of_the_command_line() {
    let options = FunctionOptions::default()
        .memory(1 << 20)
        .first_byte(Duration::from_millis(1500))
        .poll(Duration::ZERO)
        .env("A", "b=c")
        .bind_secret(
            SecretName::new("s").unwrap(),
            Outbound::new("https://a.test").unwrap(),
        );
    let values = options.values();
    let texts: Vec<_> = values
        .iter()
        .map(|one| (one.name(), one.text.as_str()))
        .collect();
    let expected = [
        ("memory", "1048576"),
        ("timeout", "1s 500ms"),
        ("poll", "off"),
        ("env", "A=b=c"),
        ("bind-secret", "s=https://a.test"),
    ];
    assert_eq!(texts, expected);
}

#[test]
fn mistakes_in_texts_are_named() {
    for (name, text, word) in [
        ("memory", "1k", "1k"),
        ("timeout", "5", "5"),
        ("idle-guest", "soon", "idle-guest"),
        ("concurrency", "-1", "-1"),
        ("poll", "11ms", "10ms"),
        ("poll", "on", "auto"),
        ("freeze", "never", "before-init"),
        ("warmup-request", "a", "METHOD /PATH"),
        ("env", "A", "NAME=VALUE"),
        ("config", "a", "NAME=VALUE"),
        ("secret", "a=b", "a=b"),
        ("kv", "default", "kv"),
        ("memry", "1", "memry"),
        ("source", "oci://a", "source"),
    ] {
        let error = option(name, text).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn mistakes_in_json_are_named() {
    let read = |json: &str| FunctionOptions::from_json(json.as_bytes());
    assert_eq!(read("{}"), Ok(FunctionOptions::default()));
    for (json, word) in [
        (r#"{"memry": 1}"#, "memry"),
        (r#"{"memory": "1"}"#, "string"),
        (r#"{"memory": 1, "memory": 2}"#, "duplicate field `memory`"),
        (r#"{"times_us": {"timeut": 1}}"#, "timeut"),
        (r#"{"stores": ["default"]}"#, "default"),
        (r#"{"freeze": "never"}"#, "before-init"),
        ("[]", "map"),
        ("", "EOF"),
        ("{} {}", "trailing"),
        (&"[".repeat(100_000), "map"),
        (&format!(r#"{{"x": {}"#, "[".repeat(100_000)), "EOF"),
        (&" ".repeat(OPTIONS_BYTES + 1), "114688"),
    ] {
        let error = read(json).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
    let last = read(r#"{"environment": [["A", "1"], ["B", "2"], ["A", "3"]]}"#);
    let expected = FunctionOptions::default().env("B", "2").env("A", "3");
    assert_eq!(last, Ok(expected));
}

#[test]
fn mistakes_in_json_do_not_repeat_secrets() {
    let secret = "sk_live=0123456789";
    for (member, value) in [
        ("environment", r#"["A", "SECRET"]"#),
        ("environment", r#"[["SECRET"]]"#),
        ("environment", r#""SECRET""#),
        ("warm_ups", r#"["SECRET"]"#),
        ("warm_ups", r#"["/\nauthorization SECRET"]"#),
        ("bound_secrets", r#"{"api_key": ["SECRET"]}"#),
        ("bound_secrets", r#"{"SECRET": []}"#),
        ("bound_secrets", r#"{"api_key": "SECRET"}"#),
        ("secrets", r#"["SECRET"]"#),
        ("secrets", r#""SECRET""#),
    ] {
        let value = value.replace("SECRET", secret);
        let json = format!(r#"{{"memory": 65536, "{member}": {value}}}"#);
        let error = FunctionOptions::from_json(json.as_bytes()).unwrap_err();
        let expected = format!("{member} is invalid; its values are not repeated here");
        assert_eq!(error, expected, "{json}");
    }
    // Only the first of these lists is invalid.
    let twice = format!(r#"{{"secrets": ["{secret}"], "secrets": []}}"#);
    let error = FunctionOptions::from_json(twice.as_bytes()).unwrap_err();
    assert!(error.contains("duplicate field `secrets`"), "{error}");
    assert!(!error.contains(secret), "{error}");
}

#[test]
fn mistakes_in_json_are_short() {
    let long = "\u{fc}".repeat(25_000);
    for json in [
        format!(r#"{{"memory": "{long}"}}"#),
        format!(r#"{{"{long}": 1}}"#),
        format!(r#"{{"{long}": 1, "{long}": 1}}"#),
        format!(r#""{long}""#),
    ] {
        let error = FunctionOptions::from_json(json.as_bytes()).unwrap_err();
        assert!(error.chars().count() < 310, "{error}");
    }
}

/// Fails with the names of the fields that a structure has in JSON.
struct FieldNames;

impl<'de> serde::Deserializer<'de> for FieldNames {
    type Error = serde::de::value::Error;

    fn deserialize_struct<V: serde::de::Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom(fields.join(" ")))
    }

    fn deserialize_any<V: serde::de::Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom("not a structure"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Without an entry, an option would have no permission, and would not reach artifacts.
#[test]
fn the_table_has_an_entry_for_each_option() {
    let fields = FunctionOptions::deserialize(FieldNames).unwrap_err();
    let fields = fields.to_string();
    let fields: BTreeSet<&str> = fields.split(' ').collect();
    let members = OPTIONS.iter().map(|option| option.member);
    let members: BTreeSet<&str> = members.chain(["source"]).collect();
    assert_eq!(fields, members);
    let is_time = |option: &&OptionDefinition| option.form == OptionForm::Time;
    let times: BTreeSet<&str> = OPTIONS.iter().filter(is_time).map(|one| one.name).collect();
    assert_eq!(times, TimeLimit::ALL.map(TimeLimit::word).into());
}
