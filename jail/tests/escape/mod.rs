//! What the suites share that attack a jail from within, the sandbox's
//! (`pool/sandbox/tests/escape`) and the compile helper's (`compiler/tests/escape`).
//!
//! Each has programs of its own that make the jail as it is made in earnest. Here is
//! what an attack is ([`attack`]), the attacks that are the same in every jail
//! ([`common`]), how one ends ([`outcome`]), and the two rounds that each is run in
//! ([`suite`]): with the jail's filter, and with one that lets everything through.
//!
//! Both rounds come again at the reduced level ([`reduced`]): the first of them in processes that
//! may make no namespaces ([`denied`]).

pub mod attack;
pub mod common;
pub mod denied;
pub mod outcome;
pub mod reduced;
pub mod suite;
