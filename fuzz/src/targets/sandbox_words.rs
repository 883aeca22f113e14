//! The words of a mailbox that a sandbox acts on itself. Input: the guest's words.

use faasw_abi::mailbox::{GUEST_WORDS, GuestWords, MAILBOX_BYTES};
use faasw_abi::memory_map::LARGE_PAGE;
use faasw_sandbox::memory::arena::Arena;
use faasw_sandbox::memory::mailbox::Mailbox;
use std::os::fd::OwnedFd;
use zerocopy::FromBytes as _;

use crate::Target;
use crate::input::Input;

/// The target takes no memory except for the mapping that is made with the first input.
pub const TARGET: Target = Target {
    name: "sandbox_words",
    read,
    memory: 64,
    per_byte: 0,
    executions: 50_000,
};

thread_local! {
    /// Mapped once, because a sandbox's mappings stay as long as it lives.
    static MAILBOX: (OwnedFd, Mailbox) = {
        let made = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC)
            .and_then(|file| {
                rustix::fs::ftruncate(&file, MAILBOX_BYTES)?;
                // The mappings stay when the arena is dropped: `release_at_end` is not called.
                let mapped = Mailbox::new(&mut Arena::default(), rustix::io::dup(&file)?)?;
                Ok((file, mapped))
            });
        made.unwrap_or_else(|errno| panic!("{errno}"))
    };
}

fn read(bytes: &[u8]) -> bool {
    MAILBOX.with(|(file, mapped)| {
        let bytes: [u8; size_of::<GuestWords>()] = Input::new(bytes).array();
        let put = rustix::io::pwrite(file, &bytes, GUEST_WORDS.offset);
        assert_eq!(put, Ok(bytes.len()));
        let Ok(words) = GuestWords::read_from_bytes(&bytes) else {
            return false;
        };
        assert_eq!(mapped.wait_wanted(), words.wait_nanoseconds);
        let wish = mapped.populate_wanted();
        // An address at the end of the number range is no RAM, and is rejected later.
        assert!(wish.bytes() <= LARGE_PAGE && wish.bytes() <= words.populate_bytes);
        assert!(wish.is_empty() || wish.start.address().get() <= words.populate_start);
        true
    })
}
