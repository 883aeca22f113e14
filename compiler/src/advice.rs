//! Refusals that need some care: a list of imports, and what to build instead.

use faasw_compile_report::{Refusal, RefusalKind};

/// Most imports that a refusal lists. More would bury the message, and the
/// first hundred already say which toolchain is to blame.
const LISTED_MAX: usize = 100;

/// What a function has to be, for those whose upload is something else.
pub const WHAT_TO_BUILD: &str = "build a command (a program with `main`, for wasm32-wasip1 or \
     wasm32-wasip2) or a component that exports wasi:http/incoming-handler";

/// Said where a component was built for another WASI than 0.2.
const OTHER_WASI: &str = "WASI 0.2 is the version that functions can use; \
     build for wasm32-wasip2 or with a toolchain of WASI 0.2";

/// Where imports that are never offered come from, by how they begin.
const ORIGINS: [(&str, &str); 6] = [
    (
        "wasi_unstable.",
        "this is WASI preview 0; rebuild with a current toolchain for wasm32-wasip1",
    ),
    (
        "__wbindgen",
        "this was built with wasm-bindgen for browsers; build for wasm32-wasip2 instead",
    ),
    (
        "wbg.",
        "this was built with wasm-bindgen for browsers; build for wasm32-wasip2 instead",
    ),
    (
        "gojs.",
        "this was built for browsers; build with GOOS=wasip1 GOARCH=wasm",
    ),
    ("wasi:", OTHER_WASI),
    (
        "env.",
        "imports from `env` are usually symbols that the linker did not find; \
         link the library that defines them",
    ),
];

/// Refuses a function for imports outside the supported set.
pub fn unknown_imports(mut imports: Vec<String>) -> Refusal {
    let count = imports.len();
    imports.truncate(LISTED_MAX);
    let mut message = format!("imports outside the supported set: {}", imports.join(", "));
    if count > imports.len() {
        message.push_str(&format!(" and {} more", count - imports.len()));
    }
    let origin = ORIGINS
        .iter()
        .find(|(beginning, _)| imports.iter().any(|name| name.starts_with(beginning)));
    if let Some((_, hint)) = origin {
        message.push_str(" (");
        message.push_str(hint);
        message.push(')');
    }
    Refusal {
        kind: RefusalKind::UnknownImports,
        message,
        imports,
    }
}

/// Refuses valid Wasm that is not a function.
pub fn not_a_function(what: impl std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::Unsupported, format!("{what}; {WHAT_TO_BUILD}"))
}

/// Names for a message: the first few, and how many there are beyond.
pub fn some_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 10;
    let names: Vec<&str> = names.into_iter().collect();
    let shown: Vec<&str> = names.iter().copied().take(SHOWN).collect();
    let mut text = shown.join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_of_imports_is_cut_and_counted() {
        let refusal = unknown_imports((0..250).map(|i| format!("m.f{i}")).collect());
        assert_eq!(refusal.imports.len(), LISTED_MAX);
        assert!(refusal.message.ends_with("m.f99 and 150 more"), "{refusal}");
    }

    #[test]
    fn the_origin_of_a_known_import_is_named() {
        let refusal = unknown_imports(vec!["wasi_unstable.fd_write".to_owned()]);
        assert!(refusal.message.contains("preview 0"), "{refusal}");
    }
}
