//! Doorbells: every value at every moment.

use faasw_abi::doorbell::Doorbell;
use faasw_pool::InvokeError;

use crate::Battlefield;
use crate::script::{Op, Script};
use crate::support::Bench;

/// Doorbells that the sandbox serves itself. The guest continues behind them.
const SERVED: [u32; 2] = [Doorbell::Wait as u32, Doorbell::Populate as u32];

pub async fn every_ring_out_of_order_ends_the_guest(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    let values = (0..16).chain([0x100, 1 << 31, u32::MAX - 1, u32::MAX]);
    for value in values.filter(|value| !SERVED.contains(value)) {
        for script in [
            Script::new(),
            Script::new().head(),
            Script::new().progress(),
        ] {
            let answered = field.ends(&script.rings(value).done()).await;
            assert!(
                matches!(answered, Err(InvokeError::GuestFailed(_))),
                "{value}: {answered:?}"
            );
            assert!(!field.is_warm(), "{value}");
        }
        field.other_functions_are_unaffected().await;
    }
    // Ports that do not exist, and some that exist on other machines.
    for port in [0, 0x20, 0x51, 0x53, 0x55, 0x60, 0x3f8, 0xcf8, 0xffff] {
        let script = Script::new().step(Op::Doorbell, port, u64::MAX, 0).done();
        let answered = field.ends(&script).await;
        assert!(answered.is_err(), "{port:#x}: {answered:?}");
        assert!(!field.is_warm(), "{port:#x}");
    }
    field.nothing_is_left().await;
}

pub async fn a_guest_that_goes_on_after_its_end_is_ended(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    let answer = Script::new().head().end();
    let spinning = {
        let told = answer.clone().progress();
        let from = told.here();
        told.for_ever_from(from)
    };
    for (what, script) in [
        ("done twice", answer.clone().done().done().done()),
        ("then it fails", answer.clone().done().ring(Doorbell::Fatal)),
        ("told, then it is done", answer.clone().progress().done()),
        (
            "told, then it fails",
            answer.clone().progress().ring(Doorbell::Fatal),
        ),
        ("told, then nothing", spinning),
        (
            "told, then another response",
            answer.progress().head().end().progress().done(),
        ),
    ] {
        for _ in 0..3 {
            // A guest whose instance was warm and that reports its end early may have its answer
            // passed on by then.
            match field.attack(&script).await {
                Ok(body) => assert_eq!(body, b"", "{what}"),
                Err(error) => println!("{what}: {error}"),
            }
            field.other_functions_are_unaffected().await;
        }
    }
    field.nothing_is_left().await;
}
