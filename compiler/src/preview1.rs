//! The functions that a module may import, with their types: those of WASI preview 1, and the
//! func-entry point.
//!
//! [`faasw_runtime::supported`] lists them. They are checked here so that a wrong type is reported
//! when a function is deployed.

use std::fmt;

use faasw_abi::entry::{ENTRY_MODULE, ENTRY_NAME};
use faasw_runtime::supported::{PREVIEW1, PREVIEW1_MODULE};
use wasmparser::{FuncType, ValType};

/// The type of a function. Each letter is a parameter: `i` for i32 and `I` for i64. The result is
/// an i32, the error number, except for `proc_exit` and the func-entry point, which have none.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    params: &'static str,
    has_result: bool,
}

/// Returns the type of `module`'s function `name`, if functions may import it.
pub fn signature(module: &str, name: &str) -> Option<Signature> {
    if (module, name) == (ENTRY_MODULE, ENTRY_NAME) {
        return Some(Signature {
            params: "",
            has_result: false,
        });
    }
    if module != PREVIEW1_MODULE {
        return None;
    }
    let (_, params) = PREVIEW1.iter().find(|(known, _)| *known == name)?;
    Some(Signature {
        params,
        has_result: name != "proc_exit",
    })
}

impl Signature {
    /// Returns whether a function that was imported with type `found` has this type.
    pub fn fits(self, found: &FuncType) -> bool {
        let results: &[ValType] = if self.has_result {
            &[ValType::I32]
        } else {
            &[]
        };
        found.params().iter().copied().eq(self.params()) && found.results() == results
    }

    fn params(self) -> impl Iterator<Item = ValType> {
        self.params.chars().map(|letter| match letter {
            'I' => ValType::I64,
            _ => ValType::I32,
        })
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let result = if self.has_result {
            vec![ValType::I32]
        } else {
            vec![]
        };
        f.write_str(&describe(&FuncType::new(self.params(), result)))
    }
}

/// Formats `ty` for people: `(i32, i64) -> (i32)`.
pub fn describe(ty: &FuncType) -> String {
    let list = |types: &[ValType]| {
        let names: Vec<String> = types.iter().map(ToString::to_string).collect();
        names.join(", ")
    };
    format!("({}) -> ({})", list(ty.params()), list(ty.results()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_fits_only_itself() {
        let write = signature(PREVIEW1_MODULE, "fd_write").unwrap();
        assert_eq!(write.to_string(), "(i32, i32, i32, i32) -> (i32)");
        assert!(write.fits(&FuncType::new([ValType::I32; 4], [ValType::I32])));
        assert!(!write.fits(&FuncType::new([ValType::I32; 4], [])));
        assert!(!write.fits(&FuncType::new([ValType::I64; 4], [ValType::I32])));
    }
}
