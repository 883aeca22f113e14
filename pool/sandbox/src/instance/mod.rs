//! The states of a sandbox's VM: it becomes an instance of a seed, and may become a seed.
//!
//! [`fork`] makes an instance in one step, [`zygote`] in two, of which the first is done in
//! advance. [`reset`] gives an instance exactly the state of its seed again, from the layers that
//! [`seed_memory`] holds and from the private pages that are [`known`]. [`seal`] makes a seed.

pub mod fork;
pub mod known;
pub mod reset;
pub mod seal;
pub mod seed_memory;
pub mod zygote;
