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

/// Every function of WASI preview 1. All exist; those that need missing objects, such as sockets,
/// return an error number.
pub const PREVIEW1: [&str; 46] = [
    "args_get",
    "args_sizes_get",
    "environ_get",
    "environ_sizes_get",
    "clock_res_get",
    "clock_time_get",
    "fd_advise",
    "fd_allocate",
    "fd_close",
    "fd_datasync",
    "fd_fdstat_get",
    "fd_fdstat_set_flags",
    "fd_fdstat_set_rights",
    "fd_filestat_get",
    "fd_filestat_set_size",
    "fd_filestat_set_times",
    "fd_pread",
    "fd_prestat_dir_name",
    "fd_prestat_get",
    "fd_pwrite",
    "fd_read",
    "fd_readdir",
    "fd_renumber",
    "fd_seek",
    "fd_sync",
    "fd_tell",
    "fd_write",
    "path_create_directory",
    "path_filestat_get",
    "path_filestat_set_times",
    "path_link",
    "path_open",
    "path_readlink",
    "path_remove_directory",
    "path_rename",
    "path_symlink",
    "path_unlink_file",
    "poll_oneoff",
    "proc_exit",
    "proc_raise",
    "random_get",
    "sched_yield",
    "sock_accept",
    "sock_recv",
    "sock_send",
    "sock_shutdown",
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
