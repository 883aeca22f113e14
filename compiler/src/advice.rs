//! Refusals with detailed advice: unsupported imports, and what to build instead.

use crate::protocol::{Refusal, RefusalKind};
use faasw_runtime::supported::{OTHERS, WASI_VERSION};

use crate::interface::InterfaceName;

/// Most imports that a refusal lists. More would bury the message, and the first hundred already
/// show which toolchain is the cause.
const LISTED_MAX: usize = 100;

/// Advice on what to build, for an upload that is not a function.
pub const WHAT_TO_BUILD: &str = "build a command (a program with `main`, for wasm32-wasip1 or \
     wasm32-wasip2) or a component that exports wasi:http/incoming-handler";

/// The advice for a component of WASI 0.3: which SDKs build for WASI 0.2.
pub const WASI_0_3: &str = "functions cannot use WASI 0.3 yet. The SDK decides which WASI a \
     component is of, not the target wasm32-wasip2: build with spin-sdk 5 (6 and later are of \
     WASI 0.3), wstd or the crate wasip2 for Rust, componentize-js 0.23 for JavaScript, \
     componentize-py 0.25 with wasi:http@0.2 in its world for Python";

/// The page that lists all interfaces.
const LIST: &str = "docs/components.md lists the interfaces that functions can use";

/// Advice for imports that are never offered, by their prefix.
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
    (
        "env.",
        "imports from `env` are usually symbols that the linker did not find; \
         link the library that defines them",
    ),
    (
        "wasi:logging/",
        "wasi:logging is not offered; write to standard error, which is the function's log",
    ),
];

/// Most pieces of advice in a refusal, so that it stays short.
const HINTS_MAX: usize = 4;

/// Refuses a function for imports outside the supported set.
pub fn unknown_imports(mut imports: Vec<String>) -> Refusal {
    let mut hints: Vec<String> = Vec::new();
    for hint in imports.iter().filter_map(|import| hint(import)) {
        if hints.len() < HINTS_MAX && !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    let count = imports.len();
    imports.truncate(LISTED_MAX);
    let mut message = format!("imports outside the supported set: {}", imports.join(", "));
    if count > imports.len() {
        message.push_str(&format!(" and {} more", count - imports.len()));
    }
    if !hints.is_empty() {
        message.push_str(&format!(" ({})", hints.join("; ")));
    }
    Refusal {
        kind: RefusalKind::UnknownImports,
        message,
        imports,
    }
}

/// Returns what to do about an import, if that is known.
fn hint(import: &str) -> Option<String> {
    let origin = ORIGINS
        .iter()
        .find(|(beginning, _)| import.starts_with(beginning));
    if let Some((_, hint)) = origin {
        return Some((*hint).to_owned());
    }
    // `namespace:package/interface@version#function (what it is)`.
    let interface = import.split(['#', ' ']).next()?;
    let (path, version) = match interface.split_once('@') {
        Some((path, version)) => (path, Some(version)),
        None => (interface, None),
    };
    if !(path.contains(':') && path.contains('/')) {
        return None;
    }
    let versions: Vec<&str> = OTHERS
        .iter()
        .filter_map(|other| other.name.split_once('@'))
        .filter_map(|(other, version)| (other == path).then_some(version))
        .collect();
    if !versions.is_empty() {
        // If the version is offered, the import's name already shows which function is not.
        let is_offered = version.is_some_and(|version| versions.contains(&version));
        let offered = || format!("{path} is offered as {}", versions.join(", "));
        return (!is_offered).then(offered);
    }
    Some(match (path.starts_with("wasi:"), wasi(interface)) {
        (true, Wasi::Later) => WASI_0_3.to_owned(),
        (true, Wasi::Release0_2) => {
            format!("releases of WASI 0.2 are offered up to {WASI_VERSION}")
        }
        (true, Wasi::Other) => format!("{path} is not an interface of WASI 0.2; {LIST}"),
        (false, _) => format!(
            "build without {path}, or compose the component with one that exports it; {LIST}"
        ),
    })
}

/// The WASI version that an interface belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wasi {
    /// A release of WASI 0.2.
    Release0_2,
    /// WASI 0.3 or later, and its release candidates.
    Later,
    /// A draft of another version, or an interface that no release has.
    Other,
}

/// Returns which WASI an interface belongs to, by its version alone.
pub fn wasi(interface: &str) -> Wasi {
    let Some(name) = InterfaceName::parse(interface) else {
        return Wasi::Other;
    };
    match &name.version {
        Some(version) if (version.major, version.minor) >= (0, 3) => Wasi::Later,
        // A version 0.2 alone is no proof: only interfaces of known packages have a release.
        Some(_) if name.is_wasi_0_2() && is_known(name.path) => Wasi::Release0_2,
        _ => Wasi::Other,
    }
}

/// Returns whether WASI 0.2 has the package of this path.
fn is_known(path: &str) -> bool {
    const PACKAGES: [&str; 7] = [
        "wasi:cli/",
        "wasi:clocks/",
        "wasi:filesystem/",
        "wasi:http/",
        "wasi:io/",
        "wasi:random/",
        "wasi:sockets/",
    ];
    PACKAGES.iter().any(|package| path.starts_with(package))
}

/// Refuses valid Wasm that is not a function.
pub fn not_a_function(what: impl std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::Unsupported, format!("{what}; {WHAT_TO_BUILD}"))
}

/// Lists the first few names for a message, and how many more there are.
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

    #[test]
    fn each_unknown_interface_has_words_of_its_own() {
        for (import, words) in [
            ("wasi:random/random@0.3.0", "spin-sdk 5"),
            ("wasi:http/handler@0.3.0-rc-2026-03-15", "spin-sdk 5"),
            ("wasi:logging/logging@0.1.0-draft", "standard error"),
            ("wasi:random/random@0.2.3#get-dice", "up to 0.2.12"),
            ("wasi:io/poll@0.2.99", "up to 0.2.12"),
            (
                "wasi:nn/tensor@0.2.0-rc-2024-10-28",
                "wasi:nn/tensor is not an interface",
            ),
            (
                "wasi:blobstore/blobstore",
                "wasi:blobstore/blobstore is not an interface",
            ),
            (
                "wasi:config/store@0.2.0-draft-2030-01-01",
                "is offered as 0.2.0-",
            ),
            ("fermyon:spin/variables@3.0.0", "is offered as 2.0.0"),
            ("acme:secret/api@1.0.0#peek", "compose"),
        ] {
            let refusal = unknown_imports(vec![import.to_owned()]);
            assert!(refusal.message.contains(words), "{refusal}");
            let is_about_0_3 = refusal.message.contains("spin-sdk");
            assert_eq!(is_about_0_3, words.contains("spin-sdk"), "{refusal}");
        }
        // For these imports the name says enough.
        for import in ["lone", "wasi:config/store@0.2.0-rc.1#set", "m.f"] {
            let refusal = unknown_imports(vec![import.to_owned()]);
            let message = format!("imports outside the supported set: {import}");
            assert_eq!(refusal.message, message);
        }
    }

    #[test]
    fn each_piece_of_advice_is_given_once() {
        let imports = [
            "wasi:random/random@0.3.0",
            "wasi:random/random@0.3.0#get-random-u64",
            "wasi:logging/logging@0.1.0",
            "wasi:clocks/wall-clock@0.3.0",
        ];
        let refusal = unknown_imports(imports.map(str::to_owned).into());
        assert_eq!(
            refusal.message.matches("spin-sdk 5").count(),
            1,
            "{refusal}"
        );
        assert!(refusal.message.contains("standard error"), "{refusal}");
        let many = (0..9).map(|number| format!("a:b/c{number}")).collect();
        let refusal = unknown_imports(many);
        assert_eq!(refusal.message.matches("compose").count(), HINTS_MAX);
    }
}
