//! Functions on sockets, which do not exist, and on rights, which cannot be changed.

use wasmtime::{FuncType, Linker, Result, Val, ValType};

use super::MODULE;
use super::errno::Errno;
use super::memory::unsigned;
use crate::platform::Platform;
use crate::state::State;

/// A function that always fails.
struct Refused {
    name: &'static str,
    /// Parameters of the function: `i` for 32 bits, `I` for 64.
    parameters: &'static str,
    /// The error for an open descriptor.
    errno: Errno,
}

const fn refused(name: &'static str, parameters: &'static str, errno: Errno) -> Refused {
    Refused {
        name,
        parameters,
        errno,
    }
}

const FUNCTIONS: [Refused; 5] = [
    refused("fd_fdstat_set_rights", "iII", Errno::Notsup),
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
            let descriptor = arguments.first().and_then(Val::i32);
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
