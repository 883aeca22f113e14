//! The memory that a script's request writes to, and the memory that a script has, natively.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::fs::{File, read_to_string};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use support::scripts::{JAVASCRIPT, asked};

const PAGE: usize = 4096;

/// The guard behind a linear memory is larger than behind any other memory, in bytes.
const GUARD: u64 = 64 << 20;

/// A text in the script's linear memory, and in no other memory that has a guard behind it.
const MARK: &str = "a mark that no other memory has 6d1f";

/// Returns the linear memories that contain the mark: the writable range in front of a guard.
fn marked(memory: &File) -> Vec<Range<u64>> {
    let maps = read_to_string("/proc/self/maps").unwrap();
    let lines: Vec<(Range<u64>, &str)> = maps
        .lines()
        .map(|line| {
            let mut words = line.split_whitespace();
            let (begin, end) = words.next().unwrap().split_once('-').unwrap();
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            (number(begin)..number(end), words.next().unwrap())
        })
        .collect();
    let mut found = Vec::new();
    for pair in lines.windows(2) {
        let [(range, rights), (guard, guards)] = pair else {
            continue;
        };
        let guarded =
            *guards == "---p" && range.end == guard.start && guard.end - guard.start > GUARD;
        if *rights == "rw-p" && guarded {
            let content = content(memory, range);
            if content.windows(MARK.len()).any(|at| at == MARK.as_bytes()) {
                found.push(range.clone());
            }
        }
    }
    found
}

fn content(memory: &File, range: &Range<u64>) -> Vec<u8> {
    let mut content = vec![0; usize::try_from(range.end - range.start).unwrap()];
    memory.read_exact_at(&mut content, range.start).unwrap();
    content
}

/// A fork copies each changed page. Most of the changed pages are new, and lie close together.
#[test]
fn a_greeting_changes_few_pages_of_the_engines_memory() {
    let script = format!(
        "const mark = '{MARK}';
        export default {{ fetch: (request) => new Response(`Hello from ${{request.url}}`) }};"
    );
    let call = asked("/");
    let mut ready = JAVASCRIPT
        .init(&[("a.js", script.as_bytes())], &call)
        .unwrap_or_else(|failure| panic!("{}", failure.report));
    let memory = File::open("/proc/self/mem").unwrap();
    let ranges = marked(&memory);
    assert_eq!(ranges.len(), 1, "{ranges:x?}");
    let before = content(&memory, &ranges[0]);
    ready
        .handle(call.request)
        .unwrap_or_else(|failure| panic!("{}", failure.report));
    let after = content(&memory, &ranges[0]);
    let told: Vec<String> = before
        .chunks(PAGE)
        .zip(after.chunks(PAGE))
        .enumerate()
        .filter(|(_, (before, after))| before != after)
        .map(|(page, (before, after))| {
            let changed = before.iter().zip(after).filter(|(a, b)| a != b);
            format!("page {page}: {} bytes", changed.count())
        })
        .collect();
    assert!(told.len() <= 10, "{} pages: {told:#?}", told.len());
}

/// Small blocks first come from an arena that reuses only freed blocks.
#[test]
fn a_request_that_allocates_a_gigabyte_in_small_pieces_uses_its_memory_again() {
    let script = b"
        let kept = Array.from({ length: 5000 }, (_, n) => ({ n, text: 'x'.repeat(n % 300) }));
        export default { fetch() {
            let bytes = 0, sum = 0;
            for (let round = 0; bytes < 1 << 30; round++) {
                const list = [];
                for (let n = 0; n < 1000; n++) {
                    const size = 16 + ((n * 37 + round * 11) % 1500);
                    const one = n % 3 === 0 ? 'a'.repeat(size) + n : n % 3 === 1 \
                        ? new Uint8Array(size) : { n, list: new Array(size >> 4).fill(n) };
                    list.push(one);
                    bytes += size;
                }
                kept[round % kept.length] = list[round % list.length];
                sum += list.length;
            }
            return new Response(String(sum > 1000000));
        } };";
    let said = JAVASCRIPT.answer(&[("a.js", script)], asked("/").memory(40 << 20));
    assert_eq!(said, "true");
}

/// Objects from before the first request stay, and later ones do not: references between them do
/// not prevent collection.
#[test]
fn cycles_of_a_request_are_collected_though_they_refer_to_lasting_objects() {
    let script = b"
        const root = { latest: null };
        const class_of = class Node { constructor() { this.root = root; this.self = this; \
            this.data = new Array(50).fill(root); } };
        export default { fetch() {
            for (let n = 0; n < 300000; n++) root.latest = new class_of();
            return new Response(String(root.latest.self.root === root));
        } };";
    let said = JAVASCRIPT.answer(&[("a.js", script)], asked("/").memory(40 << 20));
    assert_eq!(said, "true");
}

/// Properties of long-lived objects can be added and removed, and their prototypes can be changed,
/// as before.
#[test]
fn lasting_objects_can_be_changed() {
    let script = b"
        const many = {}, shared = [{ a: 1 }, { a: 2 }, { a: 3 }], map = new Map([['k', 1]]), \
            weak = new WeakMap();
        for (let n = 0; n < 2000; n++) many['k' + n] = n;
        const list = [1, 2, 3], text = 'top' + many.k1;
        class Base { #p = 1; get p() { return this.#p; } set p(v) { this.#p = v; } }
        const object = new Base();
        weak.set(object, 'kept');
        globalThis.counter = 0;
        export default { fetch() {
            for (let n = 0; n < 2000; n += 2) delete many['k' + n];
            for (let n = 0; n < 500; n++) many['new' + n] = n;
            shared[0].b = 1; shared[1].c = 2; delete shared[2].a; Object.freeze(shared[0]);
            Object.setPrototypeOf(shared[1], { inherited: 7 });
            list.push(...Array(3000).keys()); list.shift(); map.set('l', 2); map.delete('k');
            object.p = 5; object.extra = text + '!'; globalThis.counter++; globalThis.fresh = 1;
            Base.prototype.added = () => 'added';
            // Collections go through the layouts that are new by now.
            for (let n = 0; n < 200000; n++) { const one = {}; one.self = one; }
            return Response.json([Object.keys(many).length, many.k1, many.k2 ?? null, many.new499, \
                shared, shared[1].inherited,
                list.length, [...map], object.p, object.extra, weak.get(object), \
                counter, fresh, object.added()]);
        } };";
    assert_eq!(
        JAVASCRIPT.answer(&[("a.js", script)], asked("/")),
        concat!(
            r#"[1500,1,null,499,[{"a":1,"b":1},{"a":2,"c":2},{}],7,3002,[["l",2]],5,"#,
            r#""top1!","kept",1,1,"added"]"#
        )
    );
}
