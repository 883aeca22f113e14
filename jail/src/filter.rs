//! System-call filters, as tables of rules.
//!
//! In a jail, a call that no rule allows ends the process (`SECCOMP_RET_KILL_PROCESS`). Filters are
//! compiled once and installed by each child. The programs that serve and make jails use libraries
//! of the system. There, a call that no rule allows fails, unless it is dangerous
//! ([`Filter::compile_lenient`]).

use std::collections::BTreeMap;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use crate::bpf_tree;

/// A condition for an argument of a system call. Arguments are compared as the 64 bits that the
/// kernel receives, unless the variant says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgCondition {
    /// The argument with this number has this value in its lower 32 bits: for arguments that the
    /// kernel takes as an `int`.
    Equals(u8, u32),
    /// The argument is at least the first value and less than the second, as an `int`.
    InRange(u8, u32, u32),
    /// Of the bits in the first value, the argument has exactly those of the second set.
    MaskedEquals(u8, u64, u64),
}

impl ArgCondition {
    fn conditions(self) -> Result<Vec<SeccompCondition>, seccompiler::BackendError> {
        use SeccompCmpArgLen::{Dword, Qword};
        let condition = SeccompCondition::new;
        Ok(match self {
            Self::Equals(argument, value) => {
                vec![condition(argument, Dword, SeccompCmpOp::Eq, value.into())?]
            }
            Self::InRange(argument, from, to) => vec![
                condition(argument, Dword, SeccompCmpOp::Ge, from.into())?,
                condition(argument, Dword, SeccompCmpOp::Lt, to.into())?,
            ],
            Self::MaskedEquals(argument, mask, value) => {
                let masked = SeccompCmpOp::MaskedEq(mask);
                vec![condition(argument, Qword, masked, value)?]
            }
        })
    }
}

/// A way in which a system call may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The purpose; it identifies the rule in tests and documents.
    pub name: &'static str,
    /// The system call's number.
    pub call: libc::c_long,
    /// Conditions, all of which must hold; without any, the call is allowed freely.
    pub must: Vec<ArgCondition>,
}

/// Makes a rule.
#[must_use]
pub fn rule(name: &'static str, call: libc::c_long, must: &[ArgCondition]) -> Rule {
    Rule {
        name,
        call,
        must: must.to_vec(),
    }
}

/// A compiled filter.
#[derive(Clone, Debug)]
pub struct Filter(Vec<BpfProgram>);

impl Filter {
    /// Returns a filter that allows everything. Installing it takes the same locks in the kernel as
    /// any other.
    #[must_use]
    pub fn open() -> Self {
        let allow = sock_filter {
            // `BPF_RET | BPF_K`, and the action.
            code: (libc::BPF_RET | libc::BPF_K) as u16,
            jt: 0,
            jf: 0,
            k: libc::SECCOMP_RET_ALLOW,
        };
        Self(vec![vec![allow]])
    }

    /// Compiles a filter that allows the calls that one of `rules` describes, and ends the process
    /// at all others. The calls of `refused` fail with the error number before them instead: for
    /// programs that try such calls, and can do without.
    ///
    /// # Errors
    /// Returns an error if a rule names an argument that no call has, or if there are too many
    /// rules.
    pub fn compile(
        rules: &[Rule],
        refused: &[(Errno, &[libc::c_long])],
    ) -> Result<Self, seccompiler::BackendError> {
        let mut allowed = group_by_call(rules)?;
        let freely = |call: &libc::c_long| (*call, Vec::new());
        let mut programs = Vec::new();
        for (errno, calls) in refused {
            // The kernel takes the most severe action of all filters, and ending the process would
            // be more severe.
            allowed.extend(calls.iter().map(freely));
            programs.push(program(
                calls.iter().map(freely).collect(),
                SeccompAction::Allow,
                SeccompAction::Errno(errno.raw_os_error().unsigned_abs()),
            )?);
        }
        // Installed last: it does not allow others to be installed.
        programs.push(program(
            allowed,
            SeccompAction::KillProcess,
            SeccompAction::Allow,
        )?);
        Ok(Self(programs))
    }

    /// Compiles a filter that allows the calls that one of `rules` describes, ends the process at
    /// the calls of `dangerous`, and lets all others fail with `ENOSYS`. A program that tries a
    /// newer call first then uses the older one, as C libraries do.
    ///
    /// # Errors
    /// Returns the errors of [`Filter::compile`].
    pub fn compile_lenient(
        rules: &[Rule],
        dangerous: &[libc::c_long],
    ) -> Result<Self, seccompiler::BackendError> {
        let allowed = group_by_call(rules)?;
        let fails = SeccompAction::Errno(Errno::NOSYS.raw_os_error().unsigned_abs());
        let end = |call: &libc::c_long| (*call, SeccompAction::KillProcess);
        let ended: BTreeMap<_, _> = dangerous.iter().map(end).collect();
        let build = |answers: BTreeMap<_, _>, otherwise| {
            let program = bpf_tree::program(&answers, &otherwise);
            program.ok_or(seccompiler::BackendError::FilterTooLarge(answers.len()))
        };
        if allowed.values().all(Vec::is_empty) {
            let let_through = allowed.keys().map(|call| (*call, SeccompAction::Allow));
            // A dangerous call ends the process even if a rule allows it.
            let answers = let_through.chain(ended).collect();
            return Ok(Self(vec![build(answers, fails)?]));
        }
        // The kernel takes the most severe of several actions. The first filter allows the second
        // to be installed.
        Ok(Self(vec![
            build(ended, SeccompAction::Allow)?,
            program(allowed, fails, SeccompAction::Allow)?,
        ]))
    }

    /// Installs the filter in the calling thread, for good. Allocates nothing.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn install(&self) -> Result<(), Errno> {
        self.0
            .iter()
            .try_for_each(|program| seccompiler::apply_filter(program))
            .map_err(errno)
    }

    /// Installs the filter in all threads of this process, for good.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn install_in_all_threads(&self) -> Result<(), Errno> {
        self.0
            .iter()
            .try_for_each(|program| seccompiler::apply_filter_all_threads(program))
            .map_err(errno)
    }
}

fn errno(error: seccompiler::Error) -> Errno {
    match error {
        seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => {
            Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
        }
        _ => Errno::INVAL,
    }
}

/// Returns the ways in which each call is allowed. A call without ways is allowed freely.
fn group_by_call(
    rules: &[Rule],
) -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let mut allowed: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for rule in rules {
        let mut conditions = Vec::new();
        for must in &rule.must {
            conditions.extend(must.conditions()?);
        }
        let ways = allowed.entry(rule.call).or_default();
        if !conditions.is_empty() {
            ways.push(SeccompRule::new(conditions)?);
        }
    }
    for rule in rules.iter().filter(|rule| rule.must.is_empty()) {
        allowed.insert(rule.call, Vec::new());
    }
    Ok(allowed)
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matching: SeccompAction,
) -> Result<BpfProgram, seccompiler::BackendError> {
    SeccompFilter::new(rules, otherwise, matching, TargetArch::x86_64)?.try_into()
}
