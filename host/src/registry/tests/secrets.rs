//! The secrets of functions, by their names.

use faasw_client::SecretName;

use super::*;
use crate::registry::{record::FORMAT_WITH_SECRETS, tables::FORMAT_KEY};

fn function(text: &str) -> FunctionName {
    FunctionName::new(text).unwrap()
}

fn secret(text: &str) -> SecretName {
    SecretName::new(text).unwrap()
}

#[test]
fn secrets_belong_to_their_function_whatever_its_name() {
    let registry = Registry::in_memory(None).unwrap();
    assert!(registry.secrets(None).unwrap().is_empty());
    assert!(registry.samples().unwrap().is_empty());
    let names = ["a", "a-b", "aa", "b"].map(function);
    for name in &names {
        for (number, key) in ["y", "x"].iter().enumerate() {
            let sealed = [name.as_str().as_bytes(), &[number as u8]].concat();
            assert!(registry.set_secret(name, &secret(key), &sealed).unwrap());
        }
    }
    assert_eq!(registry.secrets(None).unwrap().len(), 8);
    assert_eq!(registry.samples().unwrap().len(), 4);
    for name in &names {
        let sealed = registry.sealed(name).unwrap();
        let expected = |number| [name.as_str().as_bytes(), &[number]].concat();
        assert_eq!(
            sealed,
            [(secret("x"), expected(1)), (secret("y"), expected(0))]
        );
    }
    registry.remove_function(&names[0]).unwrap();
    assert!(registry.sealed(&names[0]).unwrap().is_empty());
    assert_eq!(registry.secrets(None).unwrap().len(), 6);
    assert!(registry.remove_secret(&names[1], &secret("x")).unwrap());
    assert!(!registry.remove_secret(&names[1], &secret("x")).unwrap());
    assert_eq!(registry.sealed(&names[1]).unwrap().len(), 1);
    assert_eq!(registry.sealed(&names[2]).unwrap().len(), 2);
}

#[test]
fn all_secrets_of_a_function_fit_a_request() {
    let registry = Registry::in_memory(None).unwrap();
    let name = function("f");
    let sealed = vec![0; 16 << 10];
    for key in ["a", "b"] {
        assert!(registry.set_secret(&name, &secret(key), &sealed).unwrap());
    }
    assert!(!registry.set_secret(&name, &secret("c"), &sealed).unwrap());
    assert!(registry.set_secret(&name, &secret("b"), &sealed).unwrap());
    let other = function("f-g");
    assert!(registry.set_secret(&other, &secret("c"), &sealed).unwrap());
}

#[test]
fn setting_a_secret_raises_the_registry_format() {
    let registry = Registry::in_memory(None).unwrap();
    let format = || {
        let read = registry.store.read(|state| {
            let meta = state.open_table(META)?;
            Ok(meta.get(FORMAT_KEY)?.map(|format| format.value()))
        });
        read.unwrap()
    };
    assert!(format() < Some(FORMAT_WITH_SECRETS));
    let set = registry.set_secret(&function("f"), &secret("a"), b"x");
    assert!(set.unwrap());
    assert_eq!(format(), Some(FORMAT_WITH_SECRETS));
}
