//! Memory that only a hostile guest writes, ring 0, and absurd requests for memory.

use faasw_abi::doorbell::Doorbell;
use faasw_abi::memory_map::{
    BOOT_PAGE, CODE, GDT, HEAP, IDT, LINEAR_BASE, MAILBOX, PML4, RODATA, TABLE_ZONE, TEXT, TSS,
};

use crate::Battlefield;
use crate::script::{Script, word};
use crate::support::Bench;

pub async fn invalid_page_tables_end_the_guest(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    for (what, address) in [
        ("null", 0),
        ("boot page", BOOT_PAGE),
        ("descriptor table", GDT),
        ("task segment", TSS + 4),
        ("vector 3", IDT + 3 * 16),
        ("vector 13", IDT + 13 * 16),
        ("vector 14", IDT + 14 * 16),
        ("root table", PML4),
        ("root table's second half", PML4 + 2048),
        ("table", PML4 + 0x1000),
        ("table of the mailbox", PML4 + 0x2000),
        ("the guest's tables", TABLE_ZONE),
        ("text", TEXT),
        ("read-only data", RODATA),
        ("heap", HEAP),
        ("code", CODE),
        ("behind the mailbox", MAILBOX + (1 << 30)),
        ("nowhere", LINEAR_BASE << 4),
        ("not an address", 1 << 60),
    ] {
        for value in [0, u64::MAX, 0x1234_5678_9abc_d003] {
            let script = Script::new().store(address, value);
            for script in [
                script.clone().breakpoint().head().end().done(),
                script.head().end().done(),
            ] {
                // The guest may survive this; then its instance is reset to its seed's state, or
                // ended.
                let answered = field.attack(&script).await;
                println!("{what}, {value:#x}: {answered:?}");
            }
        }
        field.other_functions_are_unaffected().await;
        let answered = field.ends(&Script::new().head().end().done()).await;
        assert_eq!(answered.unwrap(), b"", "after {what}");
    }
    field.nothing_is_left().await;
}

pub async fn an_instance_that_entered_ring_0_is_not_used_again(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    for ring_0 in [field.carrier.ring_0(), field.carrier.halt()] {
        // An instance that only answered is warm, and receives the attack.
        field.answers().await;
        field.other_functions_are_unaffected().await;
        assert!(field.is_warm());
        let script = Script::new().gate(ring_0).breakpoint().head().end().done();
        // The outcome depends on this hardware, or on what emulates ring 0.
        let answered = field.attack(&script).await;
        println!("{ring_0:#x}: {answered:?}");
        field.other_functions_are_unaffected().await;
        assert!(!field.is_warm(), "{ring_0:#x}");
    }
    field.nothing_is_left().await;
}

pub async fn absurd_memory_requests_are_ignored(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    let mut script = Script::new();
    for start in [
        0,
        1,
        4095,
        HEAP,
        1 << 30,
        MAILBOX,
        1 << 63,
        u64::MAX - 4095,
        u64::MAX,
    ] {
        for bytes in [
            0,
            1,
            4096,
            4097,
            2 << 20,
            1 << 40,
            u64::MAX - 4095,
            u64::MAX,
        ] {
            script = script
                .store(word!(populate_start), start)
                .store(word!(populate_bytes), bytes)
                .ring(Doorbell::Populate);
        }
    }
    let answered = field.ends(&script.head().end().done()).await;
    assert_eq!(answered.unwrap(), b"");
    field.nothing_is_left().await;
}
