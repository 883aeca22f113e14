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

mod asking;
mod following;
mod others;
mod passing;
mod program;
mod registry;
mod tokens;

use common::trials::{Test, trials};
use libtest_mimic::Arguments;

fn main() {
    let arguments = Arguments::from_args();
    let of_registry: &[Test] = async_tests![
        passing::what_is_pushed_is_pulled_and_deployed,
        passing::the_same_is_pushed_to_the_same_digest,
        passing::a_closed_registry_wants_its_authority_and_a_log_in,
        passing::log_ins_come_from_files_and_helpers,
        passing::files_go_with_a_module,
        passing::what_cannot_be_is_said_in_a_line,
        passing::what_is_for_this_machine_is_for_no_proxy,
        asking::what_an_artifact_asks_for_is_given_by_a_word,
        asking::limits_are_those_of_the_node,
        asking::the_command_line_wins,
        tokens::tokens_are_had_where_the_registry_says,
        following::a_tag_is_followed,
        following::a_registry_that_is_away_is_waited_for,
        following::a_tag_that_asks_for_more_later_is_not_given_it,
    ];
    let of_oras: &[Test] = async_tests![
        others::oras_pulls_what_is_pushed,
        others::what_oras_pushes_is_pulled_and_deployed,
        others::an_image_from_scratch_is_deployed,
        others::of_an_index_the_one_for_wasi_is_deployed,
        others::other_artifacts_are_refused,
        others::files_that_lead_out_are_refused,
    ];
    let of_nobody: &[Test] = async_tests![passing::whoever_is_killed_leaves_nothing,];
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
        (of_nobody, None),
    ];
    libtest_mimic::run(&arguments, trials(&arguments, groups)).exit();
}
