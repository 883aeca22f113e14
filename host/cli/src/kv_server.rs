//! `--kv-server`: the Redis server for key-value stores, and the password for it.

use std::{fmt, fs};

use faasw::KeyValueServer;

use super::{exit::Exit, private_file::PrivateFile, serving::Serving, values::Hidden};

/// Maximum size of a password file in bytes.
const PASSWORD_BYTES: usize = 4 << 10;

/// Returns the configured server with its password.
///
/// # Errors
/// Returns an error if the address is not that of a server, or a file cannot be read or is invalid.
pub fn read(serving: &Serving) -> Result<Option<KeyValueServer>, Exit> {
    let Some(Hidden(url)) = &serving.kv_server else {
        return Ok(None);
    };
    let server = url.parse::<KeyValueServer>();
    let mut server = server.map_err(|error| Exit::usage(format_args!("--kv-server is {error}")))?;
    if let Some(path) = &serving.kv_password_file {
        let file = PrivateFile {
            what: "the key-value server's password",
            path,
            hint: "the password is the first line of the file",
        };
        let bytes = file.read(PASSWORD_BYTES)?;
        let text = str::from_utf8(&bytes).map_err(|_| file.wrong("is not text"))?;
        let password = text.strip_suffix('\n').unwrap_or(text);
        let password = password.strip_suffix('\r').unwrap_or(password);
        if password.contains('\n') {
            return Err(file.wrong("has more than one line"));
        }
        server = server
            .password(password)
            .map_err(|error| file.wrong(format_args!("is invalid: {error}")))?;
    }
    for path in &serving.kv_ca {
        let failed = |error: &dyn fmt::Display| {
            Exit::failure(format_args!("--kv-ca {}: {error}", path.display()))
        };
        let pem = fs::read(path).map_err(|error| failed(&error))?;
        server = server.trust(&pem).map_err(|error| failed(&error))?;
    }
    Ok(Some(server))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::args::{Command, parse};

    fn serving(line: &str) -> Serving {
        match parse(line).unwrap() {
            Command::Serve(serve) => serve.serving,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn messages_contain_no_password() {
        let given = serving("serve --kv-server redis://me:hush@store:7000/1");
        assert!(!format!("{given:?}").contains("hush"));
        let server = read(&given).unwrap().unwrap();
        assert_eq!(server.to_string(), "redis://store:7000/1");
        let refused = read(&serving("serve --kv-server http://:hush@store")).unwrap_err();
        let told = format!("{refused} {refused:?}");
        assert!(
            told.contains("redis://") && !told.contains("hush"),
            "{told}"
        );
        for line in [
            "serve --kv-password-file f",
            "serve --kv-ca f",
            "serve --kv-server",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_password_file_must_be_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let with = |content: &[u8], mode| {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let line = format!(
                "serve --kv-server redis://store --kv-password-file {}",
                path.display()
            );
            read(&serving(&line)).map(Option::unwrap)
        };
        assert!(with(b"hush\n", 0o600).is_ok());
        for (content, mode, why) in [
            (&b"hush"[..], 0o640, "to other users"),
            (b"hush\nhush\n", 0o600, "more than one line"),
            (b"\n", 0o600, "1 to 4096 bytes"),
            (b"\xff", 0o600, "not text"),
            (&[b'h'; PASSWORD_BYTES + 1], 0o600, "1 to 4096 bytes"),
        ] {
            let refused = with(content, mode).unwrap_err().to_string();
            assert!(
                refused.contains(why) && !refused.contains("hush"),
                "{refused}"
            );
        }
    }
}
