//! The functions that a module may import, with their types: those of WASI preview 1, and the
//! func-entry point.
//!
//! The runtime decides which of them a module may import ([`faasw_runtime::supported`]). The
//! standard defines the types, and they never change. They are checked here so that a wrong type is
//! reported when a function is deployed.

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
    if module != PREVIEW1_MODULE || !PREVIEW1.contains(&name) {
        return None;
    }
    let (_, params) = PARAMS.iter().find(|(known, _)| *known == name)?;
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

/// The parameters of every function of the standard, by name.
const PARAMS: [(&str, &str); 46] = [
    ("args_get", "ii"),
    ("args_sizes_get", "ii"),
    ("clock_res_get", "ii"),
    ("clock_time_get", "iIi"),
    ("environ_get", "ii"),
    ("environ_sizes_get", "ii"),
    ("fd_advise", "iIIi"),
    ("fd_allocate", "iII"),
    ("fd_close", "i"),
    ("fd_datasync", "i"),
    ("fd_fdstat_get", "ii"),
    ("fd_fdstat_set_flags", "ii"),
    ("fd_fdstat_set_rights", "iII"),
    ("fd_filestat_get", "ii"),
    ("fd_filestat_set_size", "iI"),
    ("fd_filestat_set_times", "iIIi"),
    ("fd_pread", "iiiIi"),
    ("fd_prestat_dir_name", "iii"),
    ("fd_prestat_get", "ii"),
    ("fd_pwrite", "iiiIi"),
    ("fd_read", "iiii"),
    ("fd_readdir", "iiiIi"),
    ("fd_renumber", "ii"),
    ("fd_seek", "iIii"),
    ("fd_sync", "i"),
    ("fd_tell", "ii"),
    ("fd_write", "iiii"),
    ("path_create_directory", "iii"),
    ("path_filestat_get", "iiiii"),
    ("path_filestat_set_times", "iiiiIIi"),
    ("path_link", "iiiiiii"),
    ("path_open", "iiiiiIIii"),
    ("path_readlink", "iiiiii"),
    ("path_remove_directory", "iii"),
    ("path_rename", "iiiiii"),
    ("path_symlink", "iiiii"),
    ("path_unlink_file", "iii"),
    ("poll_oneoff", "iiii"),
    ("proc_exit", "i"),
    ("proc_raise", "i"),
    ("random_get", "ii"),
    ("sched_yield", ""),
    ("sock_accept", "iii"),
    ("sock_recv", "iiiiii"),
    ("sock_send", "iiiii"),
    ("sock_shutdown", "ii"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_that_the_runtime_serves_has_a_type_here() {
        for name in PREVIEW1 {
            assert!(signature(PREVIEW1_MODULE, name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_type_fits_only_itself() {
        let write = signature(PREVIEW1_MODULE, "fd_write").unwrap();
        assert_eq!(write.to_string(), "(i32, i32, i32, i32) -> (i32)");
        assert!(write.fits(&FuncType::new([ValType::I32; 4], [ValType::I32])));
        assert!(!write.fits(&FuncType::new([ValType::I32; 4], [])));
        assert!(!write.fits(&FuncType::new([ValType::I64; 4], [ValType::I32])));
    }
}
