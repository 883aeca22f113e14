//! Clocks.

use super::errno::Errno;
use super::memory::functions;
use crate::draws::Kind;
use crate::platform::Platform;

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
            Self::Realtime => Ok(platform.wall().as_nanos().try_into()?),
            Self::Monotonic => Ok(platform.monotonic()),
        }
    }
}

functions! {
    fn clock_res_get(memory, _state; id: u32, resolution: u32) {
        Clock::from_id(id)?;
        Ok(memory.write_u64s(resolution, [RESOLUTION])?)
    }

    fn clock_time_get(memory, state; id: u32, _precision: u64, time: u32) {
        state.draws.record(Kind::Clock, "wasi_snapshot_preview1#clock_time_get", 0);
        let now = Clock::from_id(id)?.now(&state.platform)?;
        Ok(memory.write_u64s(time, [now])?)
    }
}
