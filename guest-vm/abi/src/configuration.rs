//! The interfaces by which components read their configuration.

/// The drafts of `wasi:config/store` that are in use: Wasmtime's former and current ones, and
/// Spin's. They differ by name only.
pub const CONFIG_STORES: [&str; 3] = [
    "wasi:config/store@0.2.0-draft",
    "wasi:config/store@0.2.0-rc.1",
    "wasi:config/store@0.2.0-draft-2024-09-27",
];

/// Spin's own interface for configuration. No other release of it is compatible with this one.
pub const SPIN_VARIABLES: &str = "fermyon:spin/variables@2.0.0";

/// Returns whether an import, as `interface#function`, reads the configuration.
#[must_use]
pub fn is_reader(import: &str) -> bool {
    let interface = import.split_once('#').map(|(interface, _)| interface);
    interface.is_some_and(|name| CONFIG_STORES.contains(&name) || name == SPIN_VARIABLES)
}

#[cfg(test)]
mod tests {
    use super::is_reader;

    #[test]
    fn a_reader_is_identified_by_its_interface() {
        assert!(is_reader("wasi:config/store@0.2.0-rc.1#get-all"));
        assert!(is_reader("fermyon:spin/variables@2.0.0#get"));
        for import in [
            "wasi:config/store@0.2.0-rc.1",
            "wasi:config/store@0.2.0-rc.2#get",
            "fermyon:spin/variables#get",
            "wasi:cli/environment@0.2.0#get-environment",
        ] {
            assert!(!is_reader(import), "{import}");
        }
    }
}
