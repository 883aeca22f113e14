//! Source maps (ECMA-426): the positions of the author's files in stacks.
//!
//! A module's map is the file `PATH.map`, or a `data:` URL in the module's last line. When the
//! module is loaded, only its sources and its encoded mappings are kept. They are decoded when a
//! script reads `error.stack`, or when the engine reports an error. A malformed map is ignored.

use std::{cell::RefCell, collections::BTreeMap};

use rquickjs::{Ctx, Function, Result, function::Func};

use crate::{
    interpreter,
    json::Json,
    mappings::{self, Mappings},
    modules,
};

thread_local! {
    static MAPS: RefCell<BTreeMap<String, Map>> = const { RefCell::new(BTreeMap::new()) };
}

struct Map {
    sources: Vec<String>,
    mappings: Mappings,
    /// The length in bytes of what precedes the module's text in its first line.
    shift: usize,
}

/// Makes `error.stack` name the author's files. Stacks of `Error.captureStackTrace` are mapped when
/// they are read, too.
const INSTALL: &str = r#"(map) => {
  const { get, set } = Object.getOwnPropertyDescriptor(Error.prototype, "stack");
  const shown = (stack) => (typeof stack === "string" ? map(stack) : stack);
  Object.defineProperty(Error.prototype, "stack", {
    get() { return shown(Reflect.apply(get, this, [])); },
    set,
    configurable: true,
  });
  const { captureStackTrace } = Error;
  if (typeof captureStackTrace !== "function") return;
  Error.captureStackTrace = function (object, until = Error.captureStackTrace) {
    captureStackTrace(object, until);
    const { value } = Object.getOwnPropertyDescriptor(object, "stack") ?? {};
    if (typeof value !== "string") return;
    Object.defineProperty(object, "stack", {
      get: () => map(value),
      set(value) {
        Object.defineProperty(this, "stack", { value, writable: true, configurable: true });
      },
      configurable: true,
    });
  };
}"#;

/// Keeps the map of a module that is about to be compiled, if it has one.
pub(crate) fn note(ctx: &Ctx<'_>, module: &str, source: &str, shift: usize) -> Result<()> {
    let beside = modules::take_map(&format!("{module}.map"));
    let Some(text) = beside.or_else(|| inline(source)) else {
        return Ok(());
    };
    let Some(map) = read(module, &text, shift) else {
        return Ok(());
    };
    let is_first = MAPS.with_borrow_mut(|maps| {
        maps.insert(module.to_owned(), map);
        maps.len() == 1
    });
    if is_first {
        let install: Function = interpreter::built_in(ctx, "faasw:source-maps", INSTALL)?;
        install.call::<_, ()>((Func::from(|stack: String| shown(&stack)),))?;
    }
    Ok(())
}

/// Returns the map that the last line of a source contains.
fn inline(source: &str) -> Option<Vec<u8>> {
    let last = source.trim_end().rsplit('\n').next()?;
    let url = last
        .trim_start()
        .strip_prefix("//# sourceMappingURL=data:application/json")?;
    let (_, data) = url.split_once("base64,")?;
    decode_base64(data.trim())
}

fn read(module: &str, text: &[u8], shift: usize) -> Option<Map> {
    let text = str::from_utf8(text).ok()?;
    // Some tools begin maps so that they are no JavaScript.
    let text = match text.strip_prefix(")]}") {
        Some(rest) => rest.split_once('\n')?.1,
        None => text,
    };
    let map = Json::parse(text, |name| matches!(name, "sourcesContent" | "names"))?;
    let Json::List(sources) = map.get("sources")? else {
        return None;
    };
    let root = map.get("sourceRoot").and_then(Json::text).unwrap_or("");
    let sources = sources
        .iter()
        .map(|source| source_path(module, root, source.text().unwrap_or_default()));
    Some(Map {
        sources: sources.collect(),
        mappings: Mappings::new(map.get("mappings")?.text()?),
        shift,
    })
}

/// Returns the path of a source, which is relative to its module.
fn source_path(module: &str, root: &str, source: &str) -> String {
    let source = if root.is_empty() {
        source.to_owned()
    } else {
        format!("{}/{source}", root.trim_end_matches('/'))
    };
    if let Some(path) = source.strip_prefix("file:///") {
        return path.to_owned();
    }
    if source.contains("://") || source.starts_with('/') {
        return source;
    }
    let mut path: Vec<&str> = module.split('/').collect();
    path.pop();
    for part in source.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(path.pop()),
            _ => path.push(part),
        }
    }
    path.join("/")
}

/// Returns a stack with the positions of the author's files.
pub(crate) fn shown(stack: &str) -> String {
    MAPS.with_borrow_mut(|maps| {
        if maps.is_empty() {
            return stack.to_owned();
        }
        let lines: Vec<String> = stack
            .split('\n')
            .map(|line| shown_frame(maps, line))
            .collect();
        lines.join("\n")
    })
}

fn shown_frame(maps: &mut BTreeMap<String, Map>, frame: &str) -> String {
    let mut find = || {
        let place = FramePosition::of(frame, |file| maps.contains_key(file))?;
        let map = maps.get_mut(place.file)?;
        let (source, line, column) = map.find(place.line, place.column)?;
        let before = frame.get(..place.at)?;
        let after = if frame.ends_with(')') { ")" } else { "" };
        Some(format!("{before}{source}:{line}:{column}{after}"))
    };
    find().unwrap_or_else(|| frame.to_owned())
}

/// A position in a frame of a stack, which is `    at NAME (FILE:LINE:COLUMN)` or
/// `    at FILE:LINE:COLUMN`.
pub(crate) struct FramePosition<'a> {
    pub file: &'a str,
    pub line: u32,
    pub column: u32,
    /// Where the position begins in the frame.
    at: usize,
}

impl<'a> FramePosition<'a> {
    /// Finds the position. Names and files may have parentheses, so `is_file` decides.
    pub(crate) fn of(frame: &'a str, is_file: impl Fn(&str) -> bool) -> Option<Self> {
        let start = frame.find("at ")? + 3;
        let Some(inner) = frame.strip_suffix(')') else {
            return Self::at(frame, start);
        };
        let starts = inner.match_indices(" (").map(|(at, _)| at + 2);
        let places = starts.filter_map(|at| Self::at(inner, at));
        let mut last = None;
        for place in places {
            if is_file(place.file) {
                return Some(place);
            }
            last = Some(place);
        }
        last
    }

    fn at(text: &'a str, at: usize) -> Option<Self> {
        let (rest, column) = text.get(at..)?.rsplit_once(':')?;
        let (file, line) = rest.rsplit_once(':')?;
        Some(Self {
            file,
            line: line.parse().ok()?,
            column: column.parse().ok()?,
            at,
        })
    }
}

impl Map {
    /// Returns the source, line and column of a position. Lines and columns begin at 1.
    fn find(&mut self, line: u32, column: u32) -> Option<(&str, u32, u32)> {
        let shift = if line == 1 { self.shift } else { 0 };
        let column = (column as usize).saturating_sub(shift + 1);
        let (source, line, column) = self.mappings.find(line.checked_sub(1)?, column)?;
        let source = self.sources.get(source as usize)?;
        Some((source, line.checked_add(1)?, column.checked_add(1)?))
    }
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        bits = (bits << 6) | u32::from(mappings::digit(byte)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}
