//! The state of an initialised function, as the guest sends it: the body of the response to a
//! request, if the code was instrumented by Wizer and the state was requested.
//!
//! Globals and memories have the names that the instrumentation gave them. Of a memory only the
//! parts that are not zero are sent:
//!
//! ```text
//! state:   { 1, name, type, value (16 bytes) | 2, name, bytes (u64), { run } } 0
//! run:     offset (u64), length (u32), that many bytes; a length of 0 ends them
//! name:    length (u32), that many bytes
//! ```
//!
//! The reader does not trust the sender: each name occurs once, runs are in order and within their
//! memory, and nothing follows the end.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::string::String;
use alloc::vec::Vec;

use zerocopy::TryFromBytes;

use crate::wire::{Reader, WireError, Writer};

/// Prefix of the names under which the instrumentation exports a module's state.
pub const MODULE_PREFIX: &str = "__wizer_";
/// The instance through which the instrumentation exports a component's state.
pub const COMPONENT_INSTANCE: &str = "wasmtime:wizer/access";

/// The export that initialises a module if no other export is named, as in Wizer.
pub const INITIALISER: &str = "wizer-initialize";
/// The export at which an initialised module starts instead of `_start`, if it has one, by the
/// convention of Wizer's headers for C and C++.
pub const RESUME: &str = "wizer.resume";

/// Status of a response whose body is the state.
pub const STATUS_STATE: u16 = 200;
/// Status of a response whose body is text that explains why the state is incomplete.
pub const STATUS_REFUSED: u16 = 409;
/// Maximum bytes of that text.
pub const REASON_MAX: usize = 1 << 10;

/// Maximum bytes of a run. Longer data is sent in several runs.
pub const RUN_MAX: usize = 64 << 10;

/// The type of a global.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u8)]
pub enum ValueType {
    /// 32 bits of an integer.
    I32 = 1,
    /// 64 bits of an integer.
    I64 = 2,
    /// 32 bits of a floating-point number.
    F32 = 3,
    /// 64 bits of a floating-point number.
    F64 = 4,
    /// 128 bits of anything.
    V128 = 5,
}

/// The value of a global.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Type of the value.
    pub ty: ValueType,
    /// The bits of the value; unused bits are zero.
    pub bits: u128,
}

const END: u8 = 0;
const GLOBAL: u8 = 1;
const MEMORY: u8 = 2;

/// Returns the encoded record of a global.
#[must_use]
pub fn global(name: &str, value: Value) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.bytes(&[GLOBAL]);
    writer.string(name.as_bytes());
    writer.bytes(&[value.ty as u8]);
    writer.bytes(&value.bits.to_le_bytes());
    writer.into_bytes()
}

/// Returns the start of the encoded record of a memory with this many bytes.
#[must_use]
pub fn memory(name: &str, bytes: u64) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.bytes(&[MEMORY]);
    writer.string(name.as_bytes());
    writer.bytes(&bytes.to_le_bytes());
    writer.into_bytes()
}

/// Returns the header of a run, which precedes its bytes. A length of 0 marks the end of the runs.
#[must_use]
pub fn run(offset: u64, length: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    let (front, back) = bytes.split_at_mut(8);
    front.copy_from_slice(&offset.to_le_bytes());
    back.copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Returns the encoded end of the state.
#[must_use]
pub fn end() -> [u8; 1] {
    [END]
}

/// A memory as it was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory<'a> {
    /// Size of the memory in bytes, which the decoder does not check.
    pub bytes: u64,
    /// The contents, by ascending offsets, each run within the memory; all other bytes are zero.
    pub runs: Vec<(u64, &'a [u8])>,
}

/// A function's state as it was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State<'a> {
    /// The globals that can change, by name.
    pub globals: BTreeMap<String, Value>,
    /// The memories, by name.
    pub memories: BTreeMap<String, Memory<'a>>,
}

impl<'a> State<'a> {
    /// Decodes a state. The result takes at most a few times the memory of `bytes`.
    ///
    /// # Errors
    /// Returns a [`WireError`] if `bytes` are not exactly one valid state.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        let mut state = Self::default();
        loop {
            let [kind] = reader.array()?;
            match kind {
                END if reader.left() == 0 => return Ok(state),
                GLOBAL => {
                    let name = name(&mut reader)?;
                    let value = value(&mut reader)?;
                    once(state.globals.entry(name), value)?;
                }
                MEMORY => {
                    let name = name(&mut reader)?;
                    let memory = Memory::read(&mut reader)?;
                    once(state.memories.entry(name), memory)?;
                }
                _ => return Err(WireError::BadValue),
            }
        }
    }
}

impl<'a> Memory<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        let mut memory = Self {
            bytes: u64::from_le_bytes(reader.array()?),
            runs: Vec::new(),
        };
        let mut least = 0;
        loop {
            let offset = u64::from_le_bytes(reader.array()?);
            let run = reader.slice()?;
            if run.is_empty() {
                return Ok(memory);
            }
            let end = offset.checked_add(run.len() as u64);
            let Some(end) = end.filter(|end| offset >= least && *end <= memory.bytes) else {
                return Err(WireError::BadValue);
            };
            least = end;
            memory.runs.push((offset, run));
        }
    }
}

fn name(reader: &mut Reader<'_>) -> Result<String, WireError> {
    String::from_utf8(reader.string()?).map_err(|_| WireError::BadValue)
}

fn value(reader: &mut Reader<'_>) -> Result<Value, WireError> {
    let ty: [u8; 1] = reader.array()?;
    let ty = ValueType::try_read_from_bytes(&ty);
    Ok(Value {
        ty: ty.map_err(|_| WireError::BadValue)?,
        bits: u128::from_le_bytes(reader.array()?),
    })
}

fn once<T>(entry: Entry<'_, String, T>, value: T) -> Result<(), WireError> {
    match entry {
        Entry::Vacant(vacant) => {
            vacant.insert(value);
            Ok(())
        }
        Entry::Occupied(_) => Err(WireError::BadValue),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const SEVEN: Value = Value {
        ty: ValueType::I64,
        bits: 7,
    };

    fn told() -> Vec<u8> {
        [
            &global("g", SEVEN)[..],
            &memory("m", 100),
            &run(10, 3),
            b"abc",
            &run(13, 1),
            b"d",
            &run(0, 0),
            &memory("empty", 0),
            &run(0, 0),
            &end(),
        ]
        .concat()
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let told = told();
        let state = State::decode(&told).unwrap();
        assert_eq!(state.globals["g"], SEVEN);
        assert_eq!(
            state.memories["m"],
            Memory {
                bytes: 100,
                runs: vec![(10, b"abc"), (13, b"d")]
            }
        );
        assert_eq!(state.memories["empty"], Memory::default());
    }

    #[test]
    fn truncated_or_extended_states_are_refused() {
        let told = told();
        for end in 0..told.len() {
            assert_eq!(State::decode(&told[..end]), Err(WireError::Truncated));
        }
        let more = [&told[..], b"x"].concat();
        assert_eq!(State::decode(&more), Err(WireError::BadValue));
    }

    #[test]
    fn lies_are_refused() {
        let memory_of = |runs: &[&[u8]]| [&memory("m", 100)[..], &runs.concat()].concat();
        let done = [&run(0, 0)[..], &end()].concat();
        for lie in [
            // A name twice.
            [global("g", SEVEN), global("g", SEVEN), end().to_vec()].concat(),
            [
                memory("m", 1),
                run(0, 0).to_vec(),
                memory("m", 1),
                done.clone(),
            ]
            .concat(),
            // No type, and no text.
            [
                global("g", SEVEN),
                vec![1, 1, 0, 0, 0, b'h', 6],
                vec![0; 16],
            ]
            .concat(),
            vec![1, 1, 0, 0, 0, 0xff],
            vec![3],
            // Beyond the memory, past all numbers, behind another run.
            memory_of(&[&run(99, 2), b"ab", &done]),
            memory_of(&[&run(u64::MAX, 1), b"a", &done]),
            memory_of(&[&run(5, 2), b"ab", &run(6, 1), b"c", &done]),
        ] {
            assert_eq!(State::decode(&lie), Err(WireError::BadValue), "{lie:?}");
        }
    }
}
