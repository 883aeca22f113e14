//! Functions on files, directories and sockets, of which there are none.

use wasmtime::{FuncType, Linker, Result, Val, ValType};

use super::MODULE;
use super::errno::Errno;
use super::memory::unsigned;
use crate::platform::Platform;
use crate::state::State;

/// A function that always fails.
struct Refused {
    name: &'static str,
    /// Its parameters: `i` for 32 bits, `I` for 64.
    parameters: &'static str,
    /// Which parameter is the descriptor.
    descriptor: usize,
    /// The error for a descriptor that is open, that is, a standard stream.
    errno: Errno,
}

const fn refused(name: &'static str, parameters: &'static str, errno: Errno) -> Refused {
    Refused {
        name,
        parameters,
        descriptor: 0,
        errno,
    }
}

const FUNCTIONS: [Refused; 28] = [
    refused("fd_advise", "iIIi", Errno::Spipe),
    refused("fd_allocate", "iII", Errno::Spipe),
    refused("fd_datasync", "i", Errno::Inval),
    refused("fd_fdstat_set_rights", "iII", Errno::Notsup),
    refused("fd_filestat_set_size", "iI", Errno::Inval),
    refused("fd_filestat_set_times", "iIIi", Errno::Inval),
    refused("fd_pread", "iiiIi", Errno::Spipe),
    // Not Notdir: C libraries look for preopened directories from 3 up until
    // this says that there are no more.
    refused("fd_prestat_get", "ii", Errno::Badf),
    refused("fd_prestat_dir_name", "iii", Errno::Badf),
    refused("fd_pwrite", "iiiIi", Errno::Spipe),
    refused("fd_readdir", "iiiIi", Errno::Notdir),
    refused("fd_seek", "iIii", Errno::Spipe),
    refused("fd_sync", "i", Errno::Inval),
    refused("fd_tell", "ii", Errno::Spipe),
    refused("path_create_directory", "iii", Errno::Notdir),
    refused("path_filestat_get", "iiiii", Errno::Notdir),
    refused("path_filestat_set_times", "iiiiIIi", Errno::Notdir),
    refused("path_link", "iiiiiii", Errno::Notdir),
    refused("path_open", "iiiiiIIii", Errno::Notdir),
    refused("path_readlink", "iiiiii", Errno::Notdir),
    refused("path_remove_directory", "iii", Errno::Notdir),
    refused("path_rename", "iiiiii", Errno::Notdir),
    Refused {
        descriptor: 2,
        ..refused("path_symlink", "iiiii", Errno::Notdir)
    },
    refused("path_unlink_file", "iii", Errno::Notdir),
    refused("sock_accept", "iii", Errno::Notsock),
    refused("sock_recv", "iiiiii", Errno::Notsock),
    refused("sock_send", "iiiii", Errno::Notsock),
    refused("sock_shutdown", "ii", Errno::Notsock),
];

/// Adds the functions of this module.
pub(super) fn add_to_linker<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    for refused in &FUNCTIONS {
        let parameters = refused.parameters.bytes().map(|parameter| match parameter {
            b'I' => ValType::I64,
            _ => ValType::I32,
        });
        let ty = FuncType::new(linker.engine(), parameters, [ValType::I32]);
        linker.func_new(MODULE, refused.name, ty, |caller, arguments, results| {
            let descriptor = arguments.get(refused.descriptor).and_then(Val::i32);
            let errno = match descriptor.map(unsigned) {
                Some(descriptor) if caller.data().descriptors.get(descriptor).is_none() => {
                    Errno::Badf
                }
                _ => refused.errno,
            };
            if let Some(result) = results.first_mut() {
                *result = Val::I32(errno as i32);
            }
            Ok(())
        })?;
    }
    Ok(())
}
