//! The func-entry point: the import by which a function's own code says that it is to be frozen
//! where it stands (Catalyzer §4.3). Where nobody can have it import anything, the file that it
//! opens there.

/// What a module imports it from, and a component the interface of, in any version 0.1.
pub const ENTRY_MODULE: &str = "faasw:function/entry@0.1.0";

/// Its name there.
pub const ENTRY_NAME: &str = "freeze";

/// Whether the full name of an import is that of the func-entry point, or of its interface.
#[must_use]
pub fn is_entry(import: &str) -> bool {
    import.starts_with("faasw:function/entry@")
}
