//! A folder of very many files, which is not searched for each image that is written.

use std::time::Instant;

use super::faults::{Calls, Fault, Faulty};
use super::*;

const MANY: u64 = 10_000;

fn id(number: u64) -> ImageId {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&number.to_le_bytes());
    id
}

#[test]
fn a_write_costs_the_same_among_ten_thousand_images() {
    let folder = tempfile::tempdir().unwrap();
    let calls = Calls::new(Fault::Never, 0);
    let disk = Box::new(Faulty(calls.clone()));
    let frozen = frozen();
    let bytes = images(&folder, 1 << 30)
        .write_image(&ImageIdentity::function(&id(0), &[]), &frozen)
        .bytes()
        .unwrap();
    // The budget is exactly used up: each new image replaces old ones.
    let budget = (MANY - 1) * 100 + bytes;
    let images = Images::on(disk, folder.path().into(), &[3; Images::SECRET], budget);
    let ids: Vec<ImageId> = (0..MANY).map(id).collect();
    for id in &ids[1..] {
        fs::write(images.path(&ImageKind::Function(*id)), [1; 100]).unwrap();
    }
    let begun = Instant::now();
    images.retain(&ids);
    let told = begun.elapsed();
    // Starting a node does no more than that.
    assert!(calls.made().is_empty());
    let begun = Instant::now();
    images.tidy();
    println!(
        "{MANY} names told in {told:?}, files read in {:?}",
        begun.elapsed()
    );
    let of = |kind| calls.made().iter().filter(|call| **call == kind).count() as u64;
    assert_eq!((of("names"), of("status")), (1, MANY));
    assert_eq!(names(&folder) as u64, MANY);

    let times = 100;
    let (mut most, begun) = (0, Instant::now());
    for number in 0..times {
        calls.forget();
        let of = ImageIdentity::function(&id(MANY + number), &[]);
        assert_eq!(images.write_image(&of, &frozen).bytes(), Some(bytes));
        let made = calls.made();
        let mut looks = made
            .iter()
            .filter(|call| matches!(**call, "names" | "name" | "status"));
        assert_eq!(looks.next(), None);
        most = most.max(made.len() as u64);
    }
    println!(
        "a write: {:?}, {most} calls at most",
        begun.elapsed() / times as u32
    );
    // Calls for the images that it replaces, and for its own.
    assert!(most <= 1 + bytes / 100 + 12, "{most}");
    let account = images.account.lock().bytes_beside("");
    let there = fs::read_dir(folder.path()).unwrap();
    let there: u64 = there
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert_eq!(account, there);
    assert!(there <= budget);
    // A use is noted without reading the folder, too.
    calls.forget();
    let last = ImageIdentity::function(&id(MANY + times - 1), &[]);
    assert!(restored(&images, &last).is_some());
    assert_eq!((of("names"), of("status")), (0, 1));
}

/// `FAASW_TEST_STRAYS` sets the number of strays.
#[test]
fn many_unwanted_images_are_removed_without_blocking_other_work() {
    let strays = std::env::var("FAASW_TEST_STRAYS").ok();
    let strays: u64 = strays.map_or(10_000, |strays| strays.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    for number in 0..strays {
        File::create(folder.path().join(format!("{number:064x}"))).unwrap();
    }
    let images = images(&folder, 1 << 30);
    let (wanted, frozen) = (ImageIdentity::function(&id(0), &[]), frozen());
    images.retain([&id(0)]);
    std::thread::scope(|scope| {
        let begun = Instant::now();
        let tidying = scope.spawn(|| images.tidy());
        // A deployment continues meanwhile.
        images.serve(Some(id(0)), &[id(1)]);
        assert_eq!(images.bytes_of(&id(1)), None);
        println!("a deployment after {:?}", begun.elapsed());
        assert!(images.write_image(&wanted, &frozen).bytes().is_some());
        println!("an image after {:?}", begun.elapsed());
        tidying.join().unwrap();
    });
    assert_eq!(names(&folder), 1);
}
