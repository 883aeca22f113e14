//! Images of which requests use a part: that part is loaded first, and the rest by several threads.

use super::*;

/// A source that records which chunks were read, in order, after the header.
#[derive(Clone, Debug)]
struct Watched(
    std::sync::Arc<File>,
    std::sync::Arc<std::sync::Mutex<Vec<(u64, usize)>>>,
);

impl Source for Watched {
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        self.1.lock().unwrap().push((offset, out.len()));
        FileExt::read_exact_at(&*self.0, out, offset)
    }
}

/// Returns a snapshot of 100 chunks of the heap, and the pages of it that requests use.
fn large() -> (Node, UsedPages) {
    let layer = LayerBuilder::new("test", RAM).unwrap();
    let pages = 100 * CHUNK as u64 / PAGE;
    for number in 0..pages {
        let address = HEAP + number * PAGE;
        layer.write(address, &[number as u8 | 1; 4096]).unwrap();
    }
    let own = PageRange::of_bytes(HEAP, HEAP + pages * PAGE);
    let layer = layer.freeze_at(own.into()).unwrap();
    let snapshot = Snapshot::new(None, layer, vec![], 0).unwrap();
    let snapshot = Arc::new(snapshot.owned_by(OWNER));
    let at = HEAP / PAGE;
    let told = UsedPages {
        written: vec![page(at + 700)],
        changed: 1,
        read: vec![page(at + 20), page(at + 1500)],
        code: vec![],
    };
    snapshot.working_set().learn(0, &told, RAM);
    (snapshot, told)
}

#[test]
fn the_working_set_is_loaded_before_the_rest() {
    let (snapshot, told) = large();
    let read = std::sync::Arc::default();
    let source = Watched(std::sync::Arc::new(image_of(&snapshot)), read);
    let image = Image::open(source.clone(), &key()).unwrap();
    assert_eq!(image.later_bytes(), 99 * CHUNK as u64);
    let headers = source.1.lock().unwrap().len();
    let (again, filling) = image
        .restore_first::<Vec<u8>>("first", None, vec![], OWNER)
        .unwrap();
    let again = Arc::new(again);
    assert_eq!(source.1.lock().unwrap().len(), headers + 1, "one chunk");
    assert!(!again.layer().progress().is_fully_loaded() && !again.layer().progress().has_failed());
    let missing = filling.missing();
    assert_eq!(missing.bytes(), 99 * CHUNK as u64);
    for used in told.written.iter().chain(&told.read) {
        assert!(missing.first_in(*used).is_none(), "{used:?}");
    }
    let (teller, whole) = std::sync::mpsc::channel();
    let tell = teller.clone();
    again
        .layer()
        .progress()
        .on_decided(move |is_fully_loaded| tell.send(is_fully_loaded).unwrap());
    // A page that a guest needs is read next, once, with its neighbours in the image.
    let asked = faasw_abi::pages::Page::new((HEAP / PAGE) as u32 + 1200);
    for _ in 0..3 {
        assert!(filling.fill_page(asked).unwrap());
    }
    assert_eq!(source.1.lock().unwrap().len(), headers + 2);
    assert!(!filling.missing().contains(asked));
    assert_eq!(filling.requested(), 1);
    // Sixteen pages were read for it, all of which are contiguous.
    let late = filling.late();
    assert!(late.contains(asked) && late.count() == 16, "{late:?}");
    let foreign = faasw_abi::pages::Page::new((HEAP / PAGE) as u32 - 1);
    assert!(!filling.fill_page(foreign).unwrap());
    assert!(matches!(filling.finish(), Err(ImageError::CutOff)));
    while filling.fill_next().unwrap() {}
    assert_eq!(filling.late(), late);
    assert!(filling.missing().is_empty() && !again.layer().progress().is_fully_loaded());
    assert!(whole.try_recv().is_err());
    filling.finish().unwrap();
    assert!(again.layer().progress().is_fully_loaded());
    assert_eq!(whole.try_recv(), Ok(true));
    drop(filling);
    again
        .layer()
        .progress()
        .on_decided(move |is_fully_loaded| teller.send(is_fully_loaded).unwrap());
    assert_eq!(whole.try_recv(), Ok(true));
    assert!(memory_of(&snapshot) == memory_of(&again));
    let offsets = source.1.lock().unwrap();
    assert_eq!(offsets.len(), headers + 2 + 98_usize.div_ceil(4));
}

#[test]
fn several_fill_a_layer_at_once_and_read_each_page_once() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (snapshot, _) = large();
    for _ in 0..10 {
        let source = Watched(
            std::sync::Arc::new(image_of(&snapshot)),
            std::sync::Arc::default(),
        );
        let image = Image::open(source.clone(), &key()).unwrap();
        let headers = source.1.lock().unwrap().len();
        let stored = image.stored_bytes();
        let (again, filling) = image
            .restore_first::<Vec<u8>>("first", None, vec![], OWNER)
            .unwrap();
        let wanted: Vec<PageSet> = (0..3)
            .map(|_| random_pages(&mut random)[0].iter().copied().collect())
            .collect();
        std::thread::scope(|scope| {
            for wanted in &wanted {
                let filling = &filling;
                scope.spawn(move || {
                    filling.fill_set(wanted).unwrap();
                    assert!(filling.missing().intersection(wanted).is_empty());
                });
            }
            for _ in 0..2 {
                scope.spawn(|| while filling.fill_next().unwrap() {});
            }
        });
        assert_eq!(filling.requested(), 0);
        filling.finish().unwrap();
        assert!(memory_of(&snapshot) == memory_of(&Arc::new(again)));
        // No chunk was read twice.
        let reads = source.1.lock().unwrap();
        let read: usize = reads[headers..].iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(read as u64, stored);
    }
}

#[test]
fn a_layer_that_cannot_be_fully_loaded_reports_failure() {
    let (snapshot, _) = large();
    let file = image_of(&snapshot);
    let image = Image::open(file.try_clone().unwrap(), &key()).unwrap();
    let (again, filling) = image
        .restore_first::<Vec<u8>>("first", None, vec![], OWNER)
        .unwrap();
    let end = file.metadata().unwrap().len();
    file.write_all_at(&[1; 7], end - 100).unwrap();
    let error = loop {
        match filling.fill_next() {
            Ok(true) => {}
            other => break other,
        }
    };
    assert!(matches!(error, Err(ImageError::Damaged(Part::Chunk(99)))));
    assert!(filling.finish().is_err());
    let (teller, whole) = std::sync::mpsc::channel();
    again
        .layer()
        .progress()
        .on_decided(move |is_fully_loaded| teller.send(is_fully_loaded).unwrap());
    drop(filling);
    assert!(again.layer().progress().has_failed() && !again.layer().progress().is_fully_loaded());
    assert_eq!(whole.try_recv(), Ok(false));
}
