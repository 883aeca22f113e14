//! The modules of a script: its files, by their paths.

use std::{cell::RefCell, collections::BTreeMap};

use rquickjs::{
    Ctx, Error, Exception, Module, Result, TypedArray, Value,
    loader::{ImportAttributes, Loader as Load, Resolver as Resolve},
    module::Declared,
};

use crate::faasw_module;

thread_local! {
    static FILES: RefCell<BTreeMap<String, File>> = const { RefCell::new(BTreeMap::new()) };
}

struct File {
    content: Vec<u8>,
    was_loaded: bool,
}

/// Sets the files of the script.
pub(crate) fn have(files: Vec<(String, Vec<u8>)>) {
    let files = files.into_iter().map(|(path, content)| {
        let file = File {
            content,
            was_loaded: false,
        };
        (path, file)
    });
    FILES.set(files.collect());
}

/// Forgets the content of modules that were loaded. A module is loaded once; after that only its
/// path is needed. The files that remain are for `import()`.
pub(crate) fn forget_what_was_loaded() {
    FILES.with_borrow_mut(|files| {
        for file in files.values_mut().filter(|file| file.was_loaded) {
            let mut content = std::mem::take(&mut file.content);
            // Pages that are all zeroes are not frozen.
            content.fill(0);
            std::hint::black_box(&content);
        }
    });
}

/// Returns the path of the file to which `name` refers in the file `base`.
fn resolve(base: &str, name: &str) -> Option<String> {
    let mut path: Vec<&str> = match name.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => base.split('/').collect(),
    };
    path.pop();
    for part in name.trim_start_matches('/').split('/') {
        match part {
            "" | "." => {}
            ".." => drop(path.pop()?),
            _ => path.push(part),
        }
    }
    let path = path.join("/");
    FILES.with_borrow(|files| {
        let exact = [
            String::new(),
            ".js".into(),
            ".mjs".into(),
            "/index.js".into(),
            "/index.mjs".into(),
        ];
        let mut paths = exact.iter().map(|ending| format!("{path}{ending}"));
        paths.find(|path| files.contains_key(path))
    })
}

pub(crate) struct Resolver;

impl Resolve for Resolver {
    fn resolve<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        base: &str,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> Result<String> {
        if name == faasw_module::NAME {
            return Ok(name.to_owned());
        }
        let is_path = ["./", "../", "/"]
            .iter()
            .any(|start| name.starts_with(start))
            || matches!(name, "." | "..");
        if !is_path {
            let what = format!(
                "{base} imports {name:?}, which is no file of the script: packages are to be \
                 bundled with it"
            );
            return Err(Exception::throw_reference(ctx, &what));
        }
        resolve(base, name).ok_or_else(|| {
            let what = format!("{base} imports {name:?}, but the script has no such file");
            Exception::throw_reference(ctx, &what)
        })
    }
}

pub(crate) struct Loader;

impl Load for Loader {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        attributes: Option<ImportAttributes<'js>>,
    ) -> Result<Module<'js, Declared>> {
        if name == faasw_module::NAME {
            return faasw_module::declare(ctx);
        }
        let kind = attributes
            .map(|attributes| attributes.get_type())
            .transpose()?
            .flatten();
        load(ctx, name, kind.as_deref())
    }
}

enum Kind {
    Code,
    Json,
    Text,
    Bytes,
}

/// Loads a file as a module. Its type is the one that the import states; without one, the extension
/// and the content decide.
pub(crate) fn load<'js>(
    ctx: &Ctx<'js>,
    name: &str,
    asked: Option<&str>,
) -> Result<Module<'js, Declared>> {
    let content = FILES.with_borrow_mut(|files| {
        let file = files.get_mut(name)?;
        file.was_loaded = true;
        Some(file.content.clone())
    });
    let content = content.ok_or_else(|| Error::new_loading(name))?;
    let ending = name
        .rsplit('/')
        .next()
        .and_then(|last| last.rsplit_once('.'));
    let kind = match asked {
        Some("json") => Kind::Json,
        Some("text") => Kind::Text,
        Some("bytes") => Kind::Bytes,
        Some(other) => {
            let what = format!("{name} is imported as {other:?}: json, text and bytes can be");
            return Err(Exception::throw_type(ctx, &what));
        }
        None => match ending.map(|(_, ending)| ending) {
            Some("js" | "mjs") => Kind::Code,
            Some("json") => Kind::Json,
            _ if str::from_utf8(&content).is_ok() => Kind::Text,
            _ => Kind::Bytes,
        },
    };
    let not_text = |_| Exception::throw_syntax(ctx, &format!("{name} is no text in UTF-8"));
    let value: Value = match kind {
        Kind::Code => {
            let source = String::from_utf8(content).map_err(not_text)?;
            faasw_module::note_use_of_caches(name, &source);
            let module = Module::declare(ctx.clone(), name, source)?;
            module.meta()?.set("url", format!("file:///{name}"))?;
            return Ok(module);
        }
        Kind::Json => {
            let source = String::from_utf8(content).map_err(not_text)?;
            ctx.json_parse(source)?
        }
        Kind::Text => {
            let text = String::from_utf8(content).map_err(not_text)?;
            rquickjs::String::from_str(ctx.clone(), &text)?.into_value()
        }
        Kind::Bytes => TypedArray::new(ctx.clone(), content)?.into_value(),
    };
    let module = Module::declare(ctx.clone(), name, "export default import.meta.content;")?;
    module.meta()?.set("content", value)?;
    Ok(module)
}
