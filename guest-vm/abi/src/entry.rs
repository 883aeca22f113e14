//! The func-entry point: the import by which a function's own code requests a freeze at its current
//! position (Catalyzer §2.2 and §5). For code that cannot have such an import, opening a configured
//! file takes its place.

/// Module of the import, and name of a component's interface, in any version 0.1.
pub const ENTRY_MODULE: &str = "faasw:function/entry@0.1.0";

/// Name of the imported function.
pub const ENTRY_NAME: &str = "freeze";

/// Returns whether the full name of an import is that of the func-entry point, or of its interface.
#[must_use]
pub fn is_entry(import: &str) -> bool {
    import.starts_with("faasw:function/entry@")
}
