//! `push`, `pull` and `deploy oci://` with a real registry, Debian's docker-registry, and with
//! `oras`. The functions run on a node without microVMs. Without such a registry the tests are
//! ignored, with a notice; without `oras`, those that need it are.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../../tests/common/mod.rs"]
mod common;

mod other_tools;
mod permissions;
mod program;
mod registry;
mod tag_watch;
mod tokens;
mod transfers;

use common::trials::{Test, trials};
use libtest_mimic::Arguments;

fn main() {
    let arguments = Arguments::from_args();
    let of_registry: &[Test] = async_tests![
        transfers::pushed_artifacts_are_pulled_and_deployed,
        transfers::pushing_is_deterministic,
        transfers::a_private_registry_needs_its_authority_and_a_login,
        transfers::logins_come_from_files_and_helpers,
        transfers::files_are_pushed_with_a_module,
        transfers::errors_are_one_line,
        transfers::loopback_registries_bypass_the_proxy,
        permissions::requests_of_an_artifact_need_accept,
        permissions::limits_above_the_nodes_need_accept,
        permissions::the_command_line_wins,
        tokens::tokens_come_from_the_realm_of_the_registry,
        tag_watch::a_tag_is_watched,
        tag_watch::an_unavailable_registry_is_retried,
        tag_watch::a_watched_tag_gets_no_further_grants,
    ];
    let of_oras: &[Test] = async_tests![
        other_tools::oras_pulls_pushed_artifacts,
        other_tools::artifacts_pushed_by_oras_are_pulled_and_deployed,
        other_tools::an_image_from_scratch_is_deployed,
        other_tools::the_wasi_entry_of_an_index_is_deployed,
        other_tools::artifacts_of_other_types_are_rejected,
        other_tools::archives_with_paths_outside_are_rejected,
    ];
    let without_registry: &[Test] = async_tests![transfers::a_killed_command_leaves_nothing,];
    let no_registry = registry::is_missing().err();
    let no_oras = registry::oras()
        .is_none()
        .then_some("no oras")
        .or(no_registry);
    if let Some(why) = no_oras
        && !arguments.list
    {
        eprintln!("{why} (Debian's docker-registry, and .ci/oras): not everything is tested");
    }
    let groups = [
        (of_registry, no_registry),
        (of_oras, no_oras),
        (without_registry, None),
    ];
    libtest_mimic::run(&arguments, trials(&arguments, groups)).exit();
}
