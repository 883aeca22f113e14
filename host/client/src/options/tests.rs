use std::time::Duration;

use super::access::{MOST_OUTBOUND, MOST_SECRETS, MOST_STORES};
use super::freeze::LARGEST_WARM_UPS;
use super::inputs::LONGEST_KEY;
use super::*;

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
