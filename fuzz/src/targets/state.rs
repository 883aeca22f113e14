//! The state that a guest reports for a function, as the compile helper reads it.

use faasw_abi::state::State;

use crate::Target;

/// The smallest records are names of one byte with a value behind, or a memory with a run of one
/// byte. Each takes an entry of a map or a list, which grow by doubling.
pub const TARGET: Target = Target {
    name: "state",
    read,
    memory: 4 << 10,
    per_byte: 64,
    executions: 50_000,
};

fn read(bytes: &[u8]) -> bool {
    let Ok(state) = State::decode(bytes) else {
        return false;
    };
    for memory in state.memories.values() {
        let mut end = 0;
        for (offset, run) in &memory.runs {
            assert!(!run.is_empty() && *offset >= end);
            end = offset.checked_add(run.len() as u64).unwrap_or(u64::MAX);
            assert!(end <= memory.bytes);
        }
    }
    let told = |runs: &Vec<(u64, &[u8])>| runs.iter().map(|(_, run)| run.len()).sum::<usize>();
    let told: usize = state.memories.values().map(|of| told(&of.runs)).sum();
    assert!(told <= bytes.len());
    true
}
