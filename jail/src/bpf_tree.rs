//! Filters that decide by a call's number alone.
//!
//! The library's filters compare with one number after the other, up to a hundred times. The kernel
//! runs all filters of a process if one of them inspects arguments. A filter by number consists of
//! ranges with one action each: a tree of comparisons finds the right range in seven steps
//! (libseccomp sorts such filters in the same way).

use std::collections::BTreeMap;
use std::mem::offset_of;

use seccompiler::{BpfProgram, SeccompAction, sock_filter};

/// Instructions: load a word of the call, compare it, return the action.
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// The offsets of the call's number and of its architecture.
const NUMBER: u32 = offset_of!(libc::seccomp_data, nr) as u32;
const ARCHITECTURE: u32 = offset_of!(libc::seccomp_data, arch) as u32;
/// `AUDIT_ARCH_X86_64` (linux/audit.h): the machine's ELF number, with the bits for 64 bits and
/// little-endian.
const X86_64: u32 = libc::EM_X86_64 as u32 | 0x8000_0000 | 0x4000_0000;

/// Returns a program with the actions of `answers` for their calls, and `otherwise` for all others.
/// A call of another architecture ends the process. `None` if there are so many calls that a jump
/// would be too far.
pub(crate) fn program(
    answers: &BTreeMap<libc::c_long, SeccompAction>,
    otherwise: &SeccompAction,
) -> Option<BpfProgram> {
    let otherwise = u32::from(otherwise.clone());
    let mut ranges = vec![(0, otherwise)];
    for (call, action) in answers {
        let call = u32::try_from(*call).ok()?;
        let answer = u32::from(action.clone());
        // The call before has begun a range here, which is replaced.
        ranges.pop_if(|(start, _)| *start == call);
        ranges.push((call, answer));
        ranges.push((call.checked_add(1)?, otherwise));
    }
    ranges.dedup_by_key(|(_, answer)| *answer);
    let kill = u32::from(SeccompAction::KillProcess);
    let mut program = vec![
        instruction(LOAD, 0, 0, ARCHITECTURE),
        instruction(IF_EQUAL, 1, 0, X86_64),
        instruction(ANSWER, 0, 0, kill),
        instruction(LOAD, 0, 0, NUMBER),
    ];
    program.extend(tree(&ranges)?);
    Some(program)
}

/// Returns a program that finds the range of the number. Each range starts at its own number.
fn tree(ranges: &[(u32, u32)]) -> Option<BpfProgram> {
    let (below, above) = ranges.split_at(ranges.len() / 2);
    let [(middle, answer), rest @ ..] = above else {
        return None;
    };
    if below.is_empty() && rest.is_empty() {
        return Some(vec![instruction(ANSWER, 0, 0, *answer)]);
    }
    let (below, above) = (tree(below)?, tree(above)?);
    let over = u8::try_from(below.len()).ok()?;
    let compare = instruction(IF_AT_LEAST, over, 0, *middle);
    Some([vec![compare], below, above].concat())
}

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the action of a program for a call, and the number of steps.
    fn run(program: &BpfProgram, architecture: u32, number: u32) -> (u32, usize) {
        let (mut at, mut word) = (0, 0);
        for step in 1..=program.len() {
            let now = &program[at];
            at += 1;
            match now.code {
                LOAD if now.k == ARCHITECTURE => word = architecture,
                LOAD => word = number,
                ANSWER => return (now.k, step),
                IF_EQUAL => at += usize::from(if word == now.k { now.jt } else { now.jf }),
                IF_AT_LEAST => at += usize::from(if word >= now.k { now.jt } else { now.jf }),
                other => panic!("instruction {other:#x}"),
            }
        }
        panic!("no answer");
    }

    fn check(answers: &BTreeMap<libc::c_long, SeccompAction>, otherwise: &SeccompAction) {
        let program = program(answers, otherwise).unwrap();
        // All numbers of calls, and besides them those of x32, and a number that is no call.
        for number in (0..1000).chain([0x4000_0000, 0x4000_0001, u32::MAX]) {
            let expected = answers.get(&libc::c_long::from(number));
            let (answer, steps) = run(&program, X86_64, number);
            assert_eq!(answer, u32::from(expected.unwrap_or(otherwise).clone()));
            assert!(steps < 16, "{steps} steps for {number}");
        }
        let kill = u32::from(SeccompAction::KillProcess);
        assert_eq!(run(&program, X86_64 ^ 1, 0).0, kill);
    }

    #[test]
    fn every_call_finds_its_action_in_a_few_steps() {
        use crate::daemon_allow::DAEMON_ALLOW;
        use crate::kill_list::{JAIL_SETUP_CALLS, KILL_LIST};
        let allow = DAEMON_ALLOW
            .iter()
            .map(|call| (*call, SeccompAction::Allow));
        let kill = KILL_LIST.iter().chain(JAIL_SETUP_CALLS);
        let kill = kill.map(|call| (*call, SeccompAction::KillProcess));
        let all: BTreeMap<_, _> = allow.chain(kill.clone()).collect();
        check(&all, &SeccompAction::Errno(38));
        check(&kill.collect(), &SeccompAction::Allow);
        check(&BTreeMap::new(), &SeccompAction::Allow);
        let ends = [0, 1, 999].map(|call| (call, SeccompAction::Allow));
        check(&ends.into(), &SeccompAction::KillProcess);
    }

    #[test]
    fn a_program_that_is_too_large_is_none() {
        let every_other = (0..400).map(|call| (call * 2, SeccompAction::Allow));
        assert!(program(&every_other.collect(), &SeccompAction::KillProcess).is_none());
        let below = [(-1, SeccompAction::Allow)];
        assert!(program(&below.into(), &SeccompAction::KillProcess).is_none());
    }
}
