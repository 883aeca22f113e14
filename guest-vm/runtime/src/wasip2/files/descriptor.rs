//! Operations on a descriptor of `wasi:filesystem`.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use wasmtime::Result;
use wasmtime::component::Resource;

use super::types::{
    self, DescriptorFlags, DescriptorStat, DescriptorType, ErrorCode, NewTimestamp, OpenFlags,
    PathFlags,
};
use super::{Descriptor, FileFailure, Listing, descriptor_stat, follows, hash, time, type_of};
use crate::files::Opening;
use crate::platform::Platform;
use crate::state::State;
use crate::wasip2::streams::{InputStream, OutputStream};

impl<P: Platform> types::HostDescriptor for State<P> {
    fn read_via_stream(
        &mut self,
        descriptor: Resource<Descriptor>,
        at: u64,
    ) -> Result<Resource<InputStream>, FileFailure> {
        let node = self.opened(&descriptor, DescriptorFlags::READ)?;
        self.open_node(node, InputStream::File { node, at })
    }

    fn write_via_stream(
        &mut self,
        descriptor: Resource<Descriptor>,
        at: u64,
    ) -> Result<Resource<OutputStream>, FileFailure> {
        let node = self.opened(&descriptor, DescriptorFlags::WRITE)?;
        let at = Some(at);
        self.open_node(node, OutputStream::File { node, at })
    }

    fn append_via_stream(
        &mut self,
        descriptor: Resource<Descriptor>,
    ) -> Result<Resource<OutputStream>, FileFailure> {
        let node = self.opened(&descriptor, DescriptorFlags::WRITE)?;
        self.open_node(node, OutputStream::File { node, at: None })
    }

    fn advise(
        &mut self,
        descriptor: Resource<Descriptor>,
        _at: u64,
        _length: u64,
        _advice: types::Advice,
    ) -> Result<(), FileFailure> {
        self.opened(&descriptor, DescriptorFlags::empty())?;
        Ok(())
    }

    fn sync_data(&mut self, descriptor: Resource<Descriptor>) -> Result<(), FileFailure> {
        // Files exist in memory only, so there is nothing to synchronise.
        self.node(&descriptor)?;
        Ok(())
    }

    fn get_flags(
        &mut self,
        descriptor: Resource<Descriptor>,
    ) -> Result<DescriptorFlags, FileFailure> {
        Ok(self.descriptor(&descriptor)?.flags)
    }

    fn get_type(
        &mut self,
        descriptor: Resource<Descriptor>,
    ) -> Result<DescriptorType, FileFailure> {
        let node = self.node(&descriptor)?;
        Ok(type_of(self.file_system().kind(node)?))
    }

    fn set_size(&mut self, descriptor: Resource<Descriptor>, size: u64) -> Result<(), FileFailure> {
        let node = self.opened(&descriptor, DescriptorFlags::WRITE)?;
        Ok(self.file_system().set_size(node, size)?)
    }

    fn set_times(
        &mut self,
        descriptor: Resource<Descriptor>,
        accessed: NewTimestamp,
        modified: NewTimestamp,
    ) -> Result<(), FileFailure> {
        let node = self.node(&descriptor)?;
        let mut files = self.file_system();
        let (accessed, modified) = (time(accessed, files.now()), time(modified, files.now()));
        Ok(files.set_times(node, accessed, modified)?)
    }

    fn read(
        &mut self,
        descriptor: Resource<Descriptor>,
        length: u64,
        at: u64,
    ) -> Result<(Vec<u8>, bool), FileFailure> {
        let node = self.opened(&descriptor, DescriptorFlags::READ)?;
        let bytes = self.read_file(node, at, length)?;
        let size = self.file_system().stat(node)?.size;
        let is_end = at.saturating_add(bytes.len() as u64) >= size;
        Ok((bytes, is_end))
    }

    fn write(
        &mut self,
        descriptor: Resource<Descriptor>,
        bytes: Vec<u8>,
        at: u64,
    ) -> Result<u64, FileFailure> {
        let node = self.opened(&descriptor, DescriptorFlags::WRITE)?;
        Ok(self.file_system().write(node, at, &bytes)? as u64)
    }

    fn read_directory(
        &mut self,
        descriptor: Resource<Descriptor>,
    ) -> Result<Resource<Listing>, FileFailure> {
        let folder = self.node(&descriptor)?;
        // Checks that the folder can be listed.
        self.file_system().list(folder, 0, 0)?;
        self.open_node(folder, Listing { folder, behind: 0 })
    }

    fn sync(&mut self, descriptor: Resource<Descriptor>) -> Result<(), FileFailure> {
        self.node(&descriptor)?;
        Ok(())
    }

    fn create_directory_at(
        &mut self,
        descriptor: Resource<Descriptor>,
        path: String,
    ) -> Result<(), FileFailure> {
        let folder = self.node(&descriptor)?;
        Ok(self.file_system().create_folder(folder, &path)?)
    }

    fn stat(&mut self, descriptor: Resource<Descriptor>) -> Result<DescriptorStat, FileFailure> {
        let node = self.node(&descriptor)?;
        Ok(descriptor_stat(&self.file_system().stat(node)?))
    }

    fn stat_at(
        &mut self,
        descriptor: Resource<Descriptor>,
        flags: PathFlags,
        path: String,
    ) -> Result<DescriptorStat, FileFailure> {
        let folder = self.node(&descriptor)?;
        let files = self.file_system();
        let node = files.find(folder, &path, follows(flags))?;
        Ok(descriptor_stat(&files.stat(node)?))
    }

    fn set_times_at(
        &mut self,
        descriptor: Resource<Descriptor>,
        flags: PathFlags,
        path: String,
        accessed: NewTimestamp,
        modified: NewTimestamp,
    ) -> Result<(), FileFailure> {
        let folder = self.node(&descriptor)?;
        let mut files = self.file_system();
        let node = files.find(folder, &path, follows(flags))?;
        let (accessed, modified) = (time(accessed, files.now()), time(modified, files.now()));
        Ok(files.set_times(node, accessed, modified)?)
    }

    fn link_at(
        &mut self,
        descriptor: Resource<Descriptor>,
        flags: PathFlags,
        path: String,
        to: Resource<Descriptor>,
        to_path: String,
    ) -> Result<(), FileFailure> {
        let (folder, to) = (self.node(&descriptor)?, self.node(&to)?);
        if follows(flags) {
            return Err(FileFailure::Code(ErrorCode::Invalid));
        }
        Ok(self.file_system().link((folder, &path), (to, &to_path))?)
    }

    fn open_at(
        &mut self,
        descriptor: Resource<Descriptor>,
        path_flags: PathFlags,
        path: String,
        open_flags: OpenFlags,
        flags: DescriptorFlags,
    ) -> Result<Resource<Descriptor>, FileFailure> {
        let folder = self.node(&descriptor)?;
        let opening = Opening {
            create: open_flags.contains(OpenFlags::CREATE),
            exclusive: open_flags.contains(OpenFlags::EXCLUSIVE),
            folder: open_flags.contains(OpenFlags::DIRECTORY),
            truncate: open_flags.contains(OpenFlags::TRUNCATE),
            write: flags.contains(DescriptorFlags::WRITE),
            follow: follows(path_flags),
        };
        let node = self.file_system().open(folder, &path, opening)?;
        self.opens(node)?;
        let pushed = self.table.push(Descriptor { node, flags });
        if pushed.is_err() {
            self.close_node(node);
        }
        Ok(pushed?)
    }

    fn readlink_at(
        &mut self,
        descriptor: Resource<Descriptor>,
        path: String,
    ) -> Result<String, FileFailure> {
        let folder = self.node(&descriptor)?;
        Ok(self.file_system().read_link(folder, &path)?.to_string())
    }

    fn remove_directory_at(
        &mut self,
        descriptor: Resource<Descriptor>,
        path: String,
    ) -> Result<(), FileFailure> {
        let folder = self.node(&descriptor)?;
        Ok(self.file_system().remove_folder(folder, &path)?)
    }

    fn rename_at(
        &mut self,
        descriptor: Resource<Descriptor>,
        path: String,
        to: Resource<Descriptor>,
        to_path: String,
    ) -> Result<(), FileFailure> {
        let (folder, to) = (self.node(&descriptor)?, self.node(&to)?);
        Ok(self.file_system().rename((folder, &path), (to, &to_path))?)
    }

    fn symlink_at(
        &mut self,
        descriptor: Resource<Descriptor>,
        target: String,
        path: String,
    ) -> Result<(), FileFailure> {
        let folder = self.node(&descriptor)?;
        Ok(self.file_system().create_link(&target, folder, &path)?)
    }

    fn unlink_file_at(
        &mut self,
        descriptor: Resource<Descriptor>,
        path: String,
    ) -> Result<(), FileFailure> {
        let folder = self.node(&descriptor)?;
        Ok(self.file_system().unlink(folder, &path)?)
    }

    fn is_same_object(
        &mut self,
        one: Resource<Descriptor>,
        other: Resource<Descriptor>,
    ) -> Result<bool> {
        Ok(self.table.get(&one)?.node == self.table.get(&other)?.node)
    }

    fn metadata_hash(
        &mut self,
        descriptor: Resource<Descriptor>,
    ) -> Result<types::MetadataHashValue, FileFailure> {
        Ok(hash(self.node(&descriptor)?))
    }

    fn metadata_hash_at(
        &mut self,
        descriptor: Resource<Descriptor>,
        flags: PathFlags,
        path: String,
    ) -> Result<types::MetadataHashValue, FileFailure> {
        let folder = self.node(&descriptor)?;
        Ok(hash(self.file_system().find(
            folder,
            &path,
            follows(flags),
        )?))
    }

    fn drop(&mut self, descriptor: Resource<Descriptor>) -> Result<()> {
        let descriptor = self.table.delete(descriptor)?;
        self.close_node(descriptor.node);
        Ok(())
    }
}
