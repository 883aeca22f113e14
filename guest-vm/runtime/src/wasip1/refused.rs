//! Functions on sockets, which do not exist, and on rights, which cannot be changed.

use super::errno::{Errno, Halt};
use super::memory::functions;
use crate::platform::Platform;
use crate::state::State;

/// Returns the error of a function: `errno` if the descriptor is open.
fn refusal<P: Platform>(state: &State<P>, descriptor: u32, errno: Errno) -> Result<(), Halt> {
    state.descriptors.get(descriptor).ok_or(Errno::Badf)?;
    Err(errno.into())
}

functions! {
    fn fd_fdstat_set_rights(_memory, state; descriptor: u32, _base: u64, _inheriting: u64) {
        refusal(state, descriptor, Errno::Notsup)
    }

    fn sock_accept(_memory, state; descriptor: u32, _flags: u32, _accepted: u32) {
        refusal(state, descriptor, Errno::Notsock)
    }

    fn sock_recv(
        _memory, state;
        descriptor: u32, _array: u32, _count: u32, _flags: u32, _read: u32, _read_flags: u32,
    ) {
        refusal(state, descriptor, Errno::Notsock)
    }

    fn sock_send(
        _memory, state;
        descriptor: u32, _array: u32, _count: u32, _flags: u32, _written: u32,
    ) {
        refusal(state, descriptor, Errno::Notsock)
    }

    fn sock_shutdown(_memory, state; descriptor: u32, _how: u32) {
        refusal(state, descriptor, Errno::Notsock)
    }
}
