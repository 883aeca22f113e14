//! Whether instances can be hot on this host, which means that their guests poll for the next
//! request.

use std::sync::LazyLock;

use faasw_jail::group::{CgroupLocation, Groups, Share, VM_OVERHEAD};

/// Whether this host supports a control group of lowest priority.
fn check_background_support() -> bool {
    let share = Share {
        memory: VM_OVERHEAD,
        processes: 1,
        weight: 100,
    };
    CgroupLocation::find()
        .and_then(|place| Groups::prepare(&place, share))
        .is_ok_and(|groups| {
            groups.remove();
            groups.check_background_support().is_ok()
        })
}

/// Whether instances can be hot here, which also needs more than one processor.
pub fn can_be_hot() -> bool {
    static CAN: LazyLock<bool> = LazyLock::new(|| {
        let processors = std::thread::available_parallelism().unwrap().get();
        processors > 1 && check_background_support()
    });
    *CAN
}
