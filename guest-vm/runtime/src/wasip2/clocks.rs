//! `wasi:clocks`.

use wasmtime::Result;
use wasmtime::component::Resource;

use super::bindings::wasi::clocks::{monotonic_clock, wall_clock};
use super::poll::Pollable;
use crate::draws::Kind;
use crate::platform::Platform;
use crate::state::State;

/// Nanoseconds: finer than the actual resolution of the clocks below.
const RESOLUTION: u32 = 1;

impl<P: Platform> monotonic_clock::Host for State<P> {
    fn now(&mut self) -> Result<u64> {
        self.draws
            .record(Kind::Clock, "wasi:clocks/monotonic-clock#now", 0);
        Ok(self.platform.monotonic())
    }

    fn resolution(&mut self) -> Result<u64> {
        Ok(RESOLUTION.into())
    }

    fn subscribe_instant(&mut self, when: u64) -> Result<Resource<Pollable>> {
        Ok(self.table.push(Pollable::At(when))?)
    }

    fn subscribe_duration(&mut self, when: u64) -> Result<Resource<Pollable>> {
        let deadline = self.platform.monotonic().saturating_add(when);
        Ok(self.table.push(Pollable::At(deadline))?)
    }
}

impl<P: Platform> wall_clock::Host for State<P> {
    fn now(&mut self) -> Result<wall_clock::Datetime> {
        self.draws
            .record(Kind::Clock, "wasi:clocks/wall-clock#now", 0);
        let now = self.platform.wall();
        Ok(wall_clock::Datetime {
            seconds: now.as_secs(),
            nanoseconds: now.subsec_nanos(),
        })
    }

    fn resolution(&mut self) -> Result<wall_clock::Datetime> {
        Ok(wall_clock::Datetime {
            seconds: 0,
            nanoseconds: RESOLUTION,
        })
    }
}
