//! Every import that a function may have, for the compile helper, which reports others before it
//! compiles.
//!
//! Components may import the interfaces of the two worlds in `wit/world.wit`, in any version that
//! is semver-compatible with the one there (0.2.0 and up, no release candidates), without the parts
//! that are marked `@unstable`. The same rule applies to our own interfaces. They may also import
//! the drafts of WASI and Spin's interfaces that are listed by name ([`OTHERS`]). Core modules may
//! import the functions of [`PREVIEW1`] in the module [`PREVIEW1_MODULE`], and the func-entry point
//! ([`faasw_abi::entry`]).

mod others;

pub use others::{OTHERS, OtherInterface};

/// Module name of WASI preview 1.
pub const PREVIEW1_MODULE: &str = "wasi_snapshot_preview1";

/// Every function of WASI preview 1, with its parameters: `i` for an i32, `I` for an i64. The
/// result is an i32, the error number, except for `proc_exit`, which has none. Functions that need
/// missing objects, such as sockets, return an error number.
pub const PREVIEW1: [(&str, &str); 46] = [
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

/// Interface that an HTTP component exports, without its version.
pub const HTTP_EXPORT: &str = "wasi:http/incoming-handler";

/// Interface that a command component exports, without its version.
pub const CLI_EXPORT: &str = "wasi:cli/run";

/// The newest supported 0.2 version; every lower one is compatible.
pub const WASI_VERSION: &str = "0.2.12";

/// Returns the WIT of every supported interface, as file name and text: first the package with the
/// worlds `implemented` and `refused`, then its dependencies.
#[must_use]
pub fn wit_files() -> &'static [(&'static str, &'static str)] {
    &[
        ("world.wit", include_str!("../../wit/world.wit")),
        ("deps/io.wit", include_str!("../../wit/deps/io.wit")),
        ("deps/clocks.wit", include_str!("../../wit/deps/clocks.wit")),
        ("deps/random.wit", include_str!("../../wit/deps/random.wit")),
        (
            "deps/filesystem.wit",
            include_str!("../../wit/deps/filesystem.wit"),
        ),
        (
            "deps/sockets.wit",
            include_str!("../../wit/deps/sockets.wit"),
        ),
        ("deps/cli.wit", include_str!("../../wit/deps/cli.wit")),
        ("deps/http.wit", include_str!("../../wit/deps/http.wit")),
        ("deps/engine.wit", include_str!("../../wit/deps/engine.wit")),
        (
            "deps/function.wit",
            include_str!("../../wit/deps/function.wit"),
        ),
    ]
}
