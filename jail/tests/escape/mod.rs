//! The common parts of the suites that attack a jail from within: the sandbox's
//! (`pool/sandbox/tests/escape`) and the compile helper's (`compiler/tests/escape`).
//!
//! Each suite has its own program that makes the jail as in production. This module has the parts
//! that all suites use. [`attack`] defines an attack, [`common`] has the attacks that are the same
//! in every jail, and [`outcome`] has the possible outcomes. [`suite`] runs each attack in two
//! rounds: with the jail's filter, and with one that allows everything.
//!
//! Both rounds run again at the reduced level ([`reduced`]): the first of them in processes that
//! must not make namespaces ([`denied`]).

pub mod attack;
pub mod common;
pub mod denied;
pub mod outcome;
pub mod reduced;
pub mod suite;
