//! Tests of weights as the kernel reports them.

use super::background::tests::groups;
use super::*;

/// Reads the weight of one group, or of all groups together.
fn weight_of(groups: &Groups, number: Option<u32>) -> u64 {
    let ours = groups.processors().unwrap().ours.as_fd();
    let (file, _) = weight_file(groups.version, 1);
    match number {
        Some(number) => get(ours, &format!("{number}/{file}")).unwrap(),
        None => get(ours, file).unwrap(),
    }
}

#[test]
fn a_weight_is_written_to_the_group_that_it_is_for() {
    let Some((_turn, groups)) = groups(None) else {
        return;
    };
    assert!(groups.share_processors());
    let of = |weight| weight_file(groups.version, weight).1;
    let [one, other] = [3, 5].map(|number| groups.group(number).unwrap());
    drop((one, other));
    for weight in [WEIGHT_FULL, WEIGHT_FULL / 64, 1, 0, 100] {
        groups.set_weight(3, weight).unwrap();
        assert_eq!(weight_of(&groups, Some(3)), of(weight), "{weight}");
        assert_eq!(weight_of(&groups, Some(5)), of(groups.share.weight));
    }
    assert!(groups.set_weight(4, 1).is_err(), "there is none");
    let processors = std::thread::available_parallelism().unwrap().get() as u64;
    for (is_contended, each) in [(true, WEIGHT_CONTENDED), (false, WEIGHT)] {
        groups.set_total_weight(is_contended);
        assert_eq!(
            weight_of(&groups, None),
            of((each * processors).min(WEIGHT_MAX))
        );
    }
    // The next jail in the group has the usual weight.
    groups.set_weight(3, 1).unwrap();
    groups.give_back(3, true);
    groups.group(3).unwrap();
    assert_eq!(weight_of(&groups, Some(3)), of(groups.share.weight));
    groups.remove();
}

#[test]
fn weights_are_converted_for_each_version() {
    let of = |version, weight| weight_file(version, weight);
    assert_eq!(of(CgroupVersion::One, 100), ("cpu.shares", 1024));
    assert_eq!(of(CgroupVersion::One, 0), ("cpu.shares", 2));
    assert_eq!(of(CgroupVersion::One, WEIGHT_FULL), ("cpu.shares", 102_400));
    assert_eq!(of(CgroupVersion::Two, 100), ("cpu.weight", 100));
    assert_eq!(of(CgroupVersion::Two, 0), ("cpu.weight", 1));
    assert_eq!(of(CgroupVersion::Two, WEIGHT_FULL), ("cpu.weight", 10_000));
}
