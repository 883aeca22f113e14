//! Whole lines, also behind one that was cut off.

use std::io::{self, Write};

/// What is known of what was written before.
#[derive(Debug, Default)]
pub struct Lines {
    /// The last line may lack its end.
    is_torn: bool,
}

impl Lines {
    /// Behind a line that lacks its end, or not.
    pub fn behind(is_torn: bool) -> Self {
        Self { is_torn }
    }

    /// Writes whole lines, the first of them on a line of its own.
    ///
    /// # Errors
    /// When they were not written, or not all.
    pub fn write(&mut self, to: &mut impl Write, lines: &[u8]) -> io::Result<()> {
        if self.is_torn {
            to.write_all(b"\n")?;
        }
        // Until all of it is there.
        self.is_torn = true;
        to.write_all(lines)?;
        to.flush()?;
        self.is_torn = false;
        Ok(())
    }
}
