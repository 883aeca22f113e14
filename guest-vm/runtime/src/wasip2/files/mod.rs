//! `wasi:filesystem`: the files of a function, over the same module as those of preview 1.

mod descriptor;
#[cfg(test)]
mod tests;

use alloc::string::{String, ToString as _};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use faasw_abi::files::Kind;
use wasmtime::Result;
use wasmtime::component::Resource;

use super::bindings::wasi::clocks::wall_clock::Datetime;
use super::bindings::wasi::filesystem::types::{
    DescriptorFlags, DescriptorStat, DescriptorType, ErrorCode, NewTimestamp, PathFlags,
};
use super::bindings::wasi::filesystem::{preopens, types};
use super::streams::IoError;
use crate::failure::HostFailure;
use crate::files::{FileError, Node, Stat};
use crate::platform::Platform;
use crate::state::State;

/// Maximum bytes of one read or write, whatever the function requests.
const MAX_TRANSFER: u64 = 64 << 10;

/// The resource behind `wasi:filesystem/types.descriptor`.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    node: Node,
    flags: DescriptorFlags,
}

/// The resource behind `wasi:filesystem/types.directory-entry-stream`: a folder, and the progress
/// of its listing.
#[derive(Clone, Copy, Debug)]
pub struct Listing {
    folder: Node,
    behind: u64,
}

/// The reason why an operation on files failed.
pub type FileFailure = HostFailure<ErrorCode>;

impl From<FileError> for FileFailure {
    fn from(error: FileError) -> Self {
        Self::Code(code(error))
    }
}

fn code(error: FileError) -> ErrorCode {
    match error {
        FileError::Exists => ErrorCode::Exist,
        FileError::NoEntry => ErrorCode::NoEntry,
        FileError::NotFolder => ErrorCode::NotDirectory,
        FileError::IsFolder => ErrorCode::IsDirectory,
        FileError::NotEmpty => ErrorCode::NotEmpty,
        FileError::Loop => ErrorCode::Loop,
        FileError::NameTooLong => ErrorCode::NameTooLong,
        FileError::LeadsOut | FileError::NotPermitted => ErrorCode::NotPermitted,
        FileError::Invalid => ErrorCode::Invalid,
        FileError::NoSpace => ErrorCode::InsufficientSpace,
        FileError::TooLarge => ErrorCode::FileTooLarge,
        FileError::Busy => ErrorCode::Busy,
    }
}

fn type_of(kind: Kind) -> DescriptorType {
    match kind {
        Kind::File => DescriptorType::RegularFile,
        Kind::Folder => DescriptorType::Directory,
        Kind::Link => DescriptorType::SymbolicLink,
    }
}

fn descriptor_stat(stat: &Stat) -> DescriptorStat {
    let date = |time: Duration| {
        Some(Datetime {
            seconds: time.as_secs(),
            nanoseconds: time.subsec_nanos(),
        })
    };
    DescriptorStat {
        type_: type_of(stat.kind),
        link_count: stat.links.into(),
        size: stat.size,
        data_access_timestamp: date(stat.times.accessed),
        data_modification_timestamp: date(stat.times.modified),
        status_change_timestamp: date(stat.times.changed),
    }
}

fn time(given: NewTimestamp, now: Duration) -> Option<Duration> {
    match given {
        NewTimestamp::NoChange => None,
        NewTimestamp::Now => Some(now),
        NewTimestamp::Timestamp(date) => Some(
            Duration::from_secs(date.seconds)
                .saturating_add(Duration::from_nanos(date.nanoseconds.into())),
        ),
    }
}

fn hash(node: Node) -> types::MetadataHashValue {
    types::MetadataHashValue {
        lower: u64::from(node) + 1,
        upper: 0,
    }
}

fn follows(flags: PathFlags) -> bool {
    flags.contains(PathFlags::SYMLINK_FOLLOW)
}

impl<P: Platform> State<P> {
    fn descriptor(&self, descriptor: &Resource<Descriptor>) -> Result<Descriptor, FileFailure> {
        Ok(*self.table.get(descriptor)?)
    }

    fn node(&self, descriptor: &Resource<Descriptor>) -> Result<Node, FileFailure> {
        Ok(self.descriptor(descriptor)?.node)
    }

    /// Returns the node of a file that is open with this flag.
    fn opened(
        &mut self,
        descriptor: &Resource<Descriptor>,
        flag: DescriptorFlags,
    ) -> Result<Node, FileFailure> {
        let Descriptor { node, flags } = self.descriptor(descriptor)?;
        match self.file_system().kind(node)? {
            Kind::File if flags.contains(flag) => Ok(node),
            Kind::File | Kind::Link => Err(FileFailure::Code(ErrorCode::BadDescriptor)),
            Kind::Folder => Err(FileFailure::Code(ErrorCode::IsDirectory)),
        }
    }

    /// Adds a resource that holds a node open.
    fn open_node<T: Send + 'static>(
        &mut self,
        node: Node,
        resource: T,
    ) -> Result<Resource<T>, FileFailure> {
        let pushed = self.table.push(resource)?;
        self.file_system().hold(node);
        Ok(pushed)
    }

    /// Releases the node of a closed resource.
    pub(super) fn close_node(&mut self, node: Node) {
        self.file_system().close(node);
    }

    /// Reads at most `length` bytes of a file from a position on.
    pub(super) fn read_file(
        &mut self,
        node: Node,
        at: u64,
        length: u64,
    ) -> Result<Vec<u8>, FileError> {
        let files = self.file_system();
        // The buffer has the size of the present bytes, not of the requested ones.
        let left = files.stat(node)?.size.saturating_sub(at);
        let length = length.min(MAX_TRANSFER).min(left);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        let read = files.read(node, at, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Writes all of `bytes`, at the end of a file if there is no position, and returns the end of
    /// the written bytes.
    pub(super) fn write_file(
        &mut self,
        node: Node,
        at: Option<u64>,
        bytes: &[u8],
    ) -> Result<u64, FileError> {
        let mut files = self.file_system();
        let mut at = match at {
            Some(at) => at,
            None => files.stat(node)?.size,
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let written = files.write(node, at, rest)?;
            at = at.saturating_add(written as u64);
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(at)
    }
}

impl<P: Platform> preopens::Host for State<P> {
    fn get_directories(&mut self) -> Result<Vec<(Resource<Descriptor>, String)>> {
        let files = self.file_system();
        let preopened = files.preopened();
        let preopened: Vec<_> = preopened
            .map(|(node, path)| (node, path.to_string()))
            .collect();
        let mut opened = Vec::with_capacity(preopened.len());
        for (node, path) in preopened {
            let folder = Descriptor {
                node,
                flags: DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY,
            };
            match self.open_node(node, folder) {
                Ok(folder) => opened.push((folder, path)),
                Err(FileFailure::Trap(error)) => return Err(error),
                Err(FileFailure::Code(_)) => {}
            }
        }
        Ok(opened)
    }
}

impl<P: Platform> types::Host for State<P> {
    fn filesystem_error_code(&mut self, error: Resource<IoError>) -> Result<Option<ErrorCode>> {
        Ok(self.table.get(&error)?.file.map(code))
    }

    fn convert_error_code(&mut self, failure: FileFailure) -> Result<ErrorCode> {
        failure.into_code()
    }
}

impl<P: Platform> types::HostDirectoryEntryStream for State<P> {
    fn read_directory_entry(
        &mut self,
        listing: Resource<Listing>,
    ) -> Result<Option<types::DirectoryEntry>, FileFailure> {
        let Listing { folder, behind } = *self.table.get(&listing)?;
        let files = self.file_system();
        let listed = files.list(folder, behind, 1)?;
        let Some(entry) = listed.first() else {
            return Ok(None);
        };
        let (behind, found) = (
            entry.number,
            types::DirectoryEntry {
                type_: type_of(files.kind(entry.node)?),
                name: entry.name.to_string(),
            },
        );
        self.table.get_mut(&listing)?.behind = behind;
        Ok(Some(found))
    }

    fn drop(&mut self, listing: Resource<Listing>) -> Result<()> {
        let listing = self.table.delete(listing)?;
        self.close_node(listing.folder);
        Ok(())
    }
}
