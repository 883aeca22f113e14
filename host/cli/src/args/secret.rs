//! Arguments of `secret`. A value is never an argument, because other users can read arguments.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use faasw_client::{FunctionName, SecretName};

use super::{DataDir, Format};

#[derive(Debug, Subcommand)]
pub enum Secret {
    /// Set a secret to the text on standard input, without its final line break
    Set(SecretSet),
    /// List secrets: function, name, and when each was set
    Ls(SecretLs),
    /// Remove secrets of a function
    Rm(SecretRm),
}

#[derive(Debug, Args)]
pub struct SecretSet {
    /// Name of the function, which need not exist yet
    pub function: FunctionName,
    /// Name of the secret
    pub name: SecretName,
    /// Read the value from this file instead, unchanged; it may be empty
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub node: DataDir,
}

#[derive(Debug, Args)]
pub struct SecretLs {
    /// List only the secrets of this function
    pub function: Option<FunctionName>,
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct SecretRm {
    /// Name of the function
    pub function: FunctionName,
    /// Names of the secrets
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<SecretName>,
    #[command(flatten)]
    pub node: DataDir,
}

#[cfg(test)]
mod tests {
    use faasw_client::FunctionOptions;

    use super::*;
    use crate::args::{Command, parse};

    #[test]
    fn a_secret_has_a_name_here_and_no_value() {
        let Command::Deploy(deploy) = parse("deploy f.wasm --secret a --secret b").unwrap() else {
            panic!("not deploy");
        };
        let names = ["a", "b"].map(|name| SecretName::new(name).unwrap());
        let expected = names
            .into_iter()
            .fold(FunctionOptions::default(), FunctionOptions::secret);
        assert_eq!(FunctionOptions::from(deploy.options), expected);
        let Command::Secret(Secret::Set(set)) = parse("secret set shop key").unwrap() else {
            panic!("not secret set");
        };
        assert_eq!((set.function.as_str(), set.name.as_str()), ("shop", "key"));
        for line in [
            "secret",
            "secret set shop",
            "secret set shop key value",
            "secret set shop a=b",
            "secret rm shop",
            "deploy f.wasm --secret a=b",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
