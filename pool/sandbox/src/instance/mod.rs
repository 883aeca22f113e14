//! What a sandbox's VM becomes: an instance of a seed, and a seed.
//!
//! [`fork`] does it at once, [`preset`] in two steps, of which the first is done before anybody
//! asks; [`reset`] gives an instance its seed's exact state back, by what [`source`] has of it and
//! what is [`known`] of the pages that are its own; [`seal`] makes a seed.

pub mod fork;
pub mod known;
pub mod preset;
pub mod reset;
pub mod seal;
pub mod source;
