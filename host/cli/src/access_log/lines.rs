//! Writes complete lines, even after a line that was cut off.

use std::io::{self, Write};

/// The state of the output after the last write.
#[derive(Debug, Default)]
pub struct Lines {
    /// Whether the last line may lack its end.
    is_torn: bool,
}

impl Lines {
    /// Creates the state after a line that lacks its end, or after a complete line.
    pub fn after(is_torn: bool) -> Self {
        Self { is_torn }
    }

    /// Writes complete lines, the first of them on a line of its own.
    ///
    /// # Errors
    /// Returns an error if the lines were not written, or only in part.
    pub fn write(&mut self, to: &mut impl Write, lines: &[u8]) -> io::Result<()> {
        if self.is_torn {
            to.write_all(b"\n")?;
        }
        // This holds until everything is written.
        self.is_torn = true;
        to.write_all(lines)?;
        to.flush()?;
        self.is_torn = false;
        Ok(())
    }
}
