//! Commands from the node to a guest before a request: the steps from a booted guest to a function
//! that is ready.
//!
//! Commands are appended to [`crate::mailbox::COMMANDS`], and the guest executes them in order.
//! When none is left, the guest serves the request that came with its activation. Without a request
//! it rings the doorbell of its stage, where it can be frozen. The end of each command is therefore
//! a freeze point if the node has sent no further command by then.
//!
//! ```text
//! Booted ─ Link ─▶ Linked ─ Load ─▶ Loaded ─ Instantiate ─▶ Ready ─┬─ Evaluate ─▶ Ready
//!                                                                   ├─ Script ───▶ Ready
//!                                                                   ├─ WarmUp ───▶ Ready
//!                                                                   └─ Run ──────▶ (entry point)
//! ```
//!
//! [`Command::Grow`] changes no stage. A loaded or a ready function serves requests; one that is
//! only loaded is instantiated first.

use alloc::string::String;
use alloc::vec::Vec;

use crate::wire::{Reader, RequestHead, SeedConfig, WireError, Writer};

/// A step towards a ready function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Makes the engine, and links every supported import.
    Link,
    /// Adds RAM up to `ram_bytes` from guest-physical 0.
    Grow {
        /// New size of RAM in bytes: whole large pages, never less than the current size.
        ram_bytes: u64,
    },
    /// Loads the compiled Wasm at [`crate::memory_map::CODE`] as the function's code.
    Load {
        /// Size of the code, in bytes.
        code_bytes: u64,
        /// Configuration of the function.
        config: SeedConfig,
    },
    /// Instantiates the function, which runs its start code.
    Instantiate,
    /// Calls an export of the function that has neither parameters nor results.
    Evaluate {
        /// Name of the export; `interface#name` for one of an exported interface.
        export: String,
    },
    /// Passes a script to a language engine. The script arrives on
    /// [`crate::channel::Channel::SCRIPT`], whose head is the script's length as a `u64`. If the
    /// function has files, their bundle precedes the script there.
    Script {
        /// Configuration of the function that the engine becomes.
        config: SeedConfig,
    },
    /// Lets the function answer a request that the node made, for the state that this leaves
    /// behind.
    WarmUp {
        /// Head of the request.
        request: RequestHead,
        /// Body of the request.
        body: Vec<u8>,
    },
    /// Runs a command up to its func-entry point, where it is frozen. An instance that continues
    /// from there has a request, which that run answers.
    Run,
}

impl Command {
    const LINK: u8 = 1;
    const GROW: u8 = 2;
    const LOAD: u8 = 3;
    const INSTANTIATE: u8 = 4;
    const EVALUATE: u8 = 5;
    const SCRIPT: u8 = 6;
    const WARM_UP: u8 = 7;
    const RUN: u8 = 8;

    /// Returns the name of the command, for reports.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Grow { .. } => "grow",
            Self::Load { .. } => "load",
            Self::Instantiate => "instantiate",
            Self::Evaluate { .. } => "evaluate",
            Self::Script { .. } => "script",
            Self::WarmUp { .. } => "warm-up",
            Self::Run => "run",
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Link => writer.bytes(&[Self::LINK]),
            Self::Grow { ram_bytes } => {
                writer.bytes(&[Self::GROW]);
                writer.bytes(&ram_bytes.to_le_bytes());
            }
            Self::Load { code_bytes, config } => {
                writer.bytes(&[Self::LOAD]);
                writer.bytes(&code_bytes.to_le_bytes());
                config.write(writer);
            }
            Self::Instantiate => writer.bytes(&[Self::INSTANTIATE]),
            Self::Evaluate { export } => {
                writer.bytes(&[Self::EVALUATE]);
                writer.string(export.as_bytes());
            }
            Self::Script { config } => {
                writer.bytes(&[Self::SCRIPT]);
                config.write(writer);
            }
            Self::WarmUp { request, body } => {
                writer.bytes(&[Self::WARM_UP]);
                writer.string(&request.encode());
                writer.string(body);
            }
            Self::Run => writer.bytes(&[Self::RUN]),
        }
    }

    /// Decodes the first command of `bytes` and returns it with its encoded length.
    ///
    /// # Errors
    /// Returns [`WireError::Truncated`] if the bytes end within the command, and
    /// [`WireError::BadValue`] if they begin with no command.
    pub fn decode_first(bytes: &[u8]) -> Result<(Self, usize), WireError> {
        let mut reader = Reader::new(bytes);
        let [kind] = reader.array()?;
        let command = match kind {
            Self::LINK => Self::Link,
            Self::GROW => Self::Grow {
                ram_bytes: u64::from_le_bytes(reader.array()?),
            },
            Self::LOAD => Self::Load {
                code_bytes: u64::from_le_bytes(reader.array()?),
                config: SeedConfig::read(&mut reader)?,
            },
            Self::INSTANTIATE => Self::Instantiate,
            Self::EVALUATE => Self::Evaluate {
                export: String::from_utf8(reader.string()?).map_err(|_| WireError::BadValue)?,
            },
            Self::SCRIPT => Self::Script {
                config: SeedConfig::read(&mut reader)?,
            },
            Self::WARM_UP => {
                // Both lengths precede what they count, so a message that ends too early is
                // distinguishable from one that is wrong.
                let request = reader.string()?;
                let body = reader.string()?;
                Self::WarmUp {
                    request: RequestHead::decode(&request).map_err(|_| WireError::BadValue)?,
                    body,
                }
            }
            Self::RUN => Self::Run,
            _ => return Err(WireError::BadValue),
        };
        Ok((command, bytes.len().saturating_sub(reader.left())))
    }
}

/// Commands as they are encoded in a mailbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    bytes: Vec<u8>,
    count: u32,
}

impl Commands {
    /// Encodes these commands in their order.
    #[must_use]
    pub fn of(commands: &[Command]) -> Self {
        let mut writer = Writer::default();
        for command in commands {
            command.write(&mut writer);
        }
        Self {
            bytes: writer.into_bytes(),
            count: commands.len() as u32,
        }
    }

    /// Returns the encoded commands.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of commands.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{FunctionKind, SeedFiles};
    use alloc::vec;

    fn all() -> [Command; 8] {
        [
            Command::Link,
            Command::Grow { ram_bytes: 1 << 27 },
            Command::Load {
                code_bytes: 77,
                config: SeedConfig {
                    kind: FunctionKind::CgiModule,
                    tells_state: true,
                    has_entry: false,
                    memory_limit: 1 << 20,
                    arguments: vec![b"f".to_vec()],
                    environment: vec![(b"A".to_vec(), b"b".to_vec())],
                    configuration: vec![(b"c".to_vec(), b"d".to_vec())],
                    secrets: vec![b"e".to_vec()],
                    stores: vec![b"h".to_vec()],
                    files: Some(SeedFiles {
                        bytes: 9,
                        mount: "/f".into(),
                        freeze_at: Some("/f/a".into()),
                    }),
                },
            },
            Command::Instantiate,
            Command::Evaluate {
                export: "a:b/c#init".into(),
            },
            Command::Script {
                config: SeedConfig {
                    kind: FunctionKind::HttpComponent,
                    tells_state: false,
                    has_entry: false,
                    memory_limit: 1 << 21,
                    arguments: vec![b"g".to_vec()],
                    environment: Vec::new(),
                    configuration: Vec::new(),
                    secrets: Vec::new(),
                    stores: Vec::new(),
                    files: None,
                },
            },
            Command::WarmUp {
                request: RequestHead {
                    method: b"POST".to_vec(),
                    path_and_query: b"/warm".to_vec(),
                    headers: vec![(b"a".to_vec(), b"b".to_vec())],
                    ..RequestHead::default()
                },
                body: b"{}".to_vec(),
            },
            Command::Run,
        ]
    }

    #[test]
    fn a_list_is_read_one_command_at_a_time() {
        let commands = Commands::of(&all());
        assert_eq!(commands.count(), 8);
        let mut rest = commands.bytes();
        for expected in all() {
            let (command, length) = Command::decode_first(rest).unwrap();
            assert_eq!(command, expected);
            rest = &rest[length..];
        }
        assert!(rest.is_empty());
        assert_eq!(Command::decode_first(rest), Err(WireError::Truncated));
    }

    #[test]
    fn an_invalid_command_is_refused() {
        for command in all() {
            let bytes = Commands::of(&[command]).bytes().to_vec();
            for end in 0..bytes.len() {
                let cut = Command::decode_first(&bytes[..end]);
                assert_eq!(cut, Err(WireError::Truncated));
            }
        }
        for kind in [0, 9, 255] {
            let decoded = Command::decode_first(&[kind; 32]);
            assert_eq!(decoded, Err(WireError::BadValue));
        }
        let not_text = [&[5, 1, 0, 0, 0][..], &[0xff]].concat();
        assert_eq!(Command::decode_first(&not_text), Err(WireError::BadValue));
        let no_request = [7, 1, 0, 0, 0, 9, 0, 0, 0, 0];
        assert_eq!(Command::decode_first(&no_request), Err(WireError::BadValue));
    }
}
