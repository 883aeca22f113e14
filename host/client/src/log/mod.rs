//! Lines of functions' logs, and pages of them.

mod line;
mod page;

pub use line::LogLine;
pub use page::LogPage;
