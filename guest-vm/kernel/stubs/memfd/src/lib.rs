//! Empty stand-in for the crate of this name; see the workspace's manifest.
#![no_std]
