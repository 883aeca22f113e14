//! Spelling of a [`FunctionKind`] in a report.

use faasw_abi::wire::FunctionKind;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The names of all kinds. Users see them, so they must not change.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Name {
    HttpComponent,
    CliComponent,
    CgiModule,
}

pub fn serialize<S: Serializer>(kind: &FunctionKind, serializer: S) -> Result<S::Ok, S::Error> {
    match kind {
        FunctionKind::HttpComponent => Name::HttpComponent,
        FunctionKind::CliComponent => Name::CliComponent,
        FunctionKind::CgiModule => Name::CgiModule,
    }
    .serialize(serializer)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<FunctionKind, D::Error> {
    Ok(match Name::deserialize(deserializer)? {
        Name::HttpComponent => FunctionKind::HttpComponent,
        Name::CliComponent => FunctionKind::CliComponent,
        Name::CgiModule => FunctionKind::CgiModule,
    })
}
