//! Clocks.

use wasmtime::{Caller, Linker, Result};

use super::MODULE;
use super::errno::Errno;
use super::memory::{call, unsigned};
use crate::draws::Kind;
use crate::platform::Platform;
use crate::state::State;

/// Nanoseconds: finer than the actual resolution of the clocks below.
const RESOLUTION: u64 = 1;

/// A clock. There is no processor time, because there is no process to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    Realtime,
    Monotonic,
}

impl Clock {
    /// Returns the clock with this number.
    pub(super) fn from_id(id: u32) -> Result<Self, Errno> {
        match id {
            0 => Ok(Self::Realtime),
            1 => Ok(Self::Monotonic),
            _ => Err(Errno::Inval),
        }
    }

    /// Returns the current time in nanoseconds.
    pub(super) fn now(self, platform: &impl Platform) -> Result<u64, Errno> {
        match self {
            Self::Realtime => {
                u64::try_from(platform.wall().as_nanos()).map_err(|_| Errno::Overflow)
            }
            Self::Monotonic => Ok(platform.monotonic()),
        }
    }
}

/// Adds the functions of this module.
pub(super) fn add_to_linker<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "clock_res_get",
        |caller: Caller<'_, State<P>>, id: i32, resolution: i32| {
            call(caller, |memory, _| {
                Clock::from_id(unsigned(id))?;
                Ok(memory.write_u64(unsigned(resolution), RESOLUTION)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "clock_time_get",
        |caller: Caller<'_, State<P>>, id: i32, _precision: i64, time: i32| {
            call(caller, |memory, state| {
                state
                    .draws
                    .record(Kind::Clock, "wasi_snapshot_preview1#clock_time_get", 0);
                let now = Clock::from_id(unsigned(id))?.now(&state.platform)?;
                Ok(memory.write_u64(unsigned(time), now)?)
            })
        },
    )?;
    Ok(())
}
