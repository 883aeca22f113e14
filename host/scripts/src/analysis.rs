//! Analysis of a single module: its JavaScript, its source map, its kind and its imports.

use std::path::Path;

use oxc::{
    allocator::Allocator,
    ast::ast::{Program, Statement},
    ast_visit::Visit as _,
    codegen::{Codegen, CodegenOptions},
    diagnostics::OxcDiagnostic,
    parser::{ParseOptions, Parser, ParserReturn},
    semantic::{Scoping, SemanticBuilder},
    span::SourceType,
    transformer::{
        DecoratorOptions, EnvOptions, JsxOptions, JsxRuntime, TransformOptions, Transformer,
        TypeScriptOptions,
    },
};
use oxc_resolver::TsConfig;

use crate::{
    error::PrepareError,
    production,
    table::Kind,
    visitor::{Import, ImportVisitor},
};

/// The edition of ECMAScript that the engine runs without transformation.
const TARGET: &str = "es2025";

/// CommonJS modules are bodies of functions, so they may return.
pub const PARSE_OPTIONS: ParseOptions = ParseOptions {
    parse_regular_expression: false,
    allow_return_outside_function: true,
    preserve_parens: true,
    allow_v8_intrinsics: false,
    enable_ident_hashes: true,
};

/// The type of a module by its package and extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleType {
    /// `"type": "module"` in its package, or its extension.
    Esm,
    /// `"type": "commonjs"` in its package, or its extension.
    Cjs,
    /// Neither: the syntax decides.
    Unknown,
}

/// A module to analyse.
#[derive(Debug)]
pub struct Source<'a> {
    /// The path in the bundle.
    pub path: &'a str,
    pub text: String,
    pub module_type: ModuleType,
    /// Whether it belongs to a package.
    pub is_of_package: bool,
    pub configuration: Option<&'a TsConfig>,
}

/// A module that the engine can load.
#[derive(Debug)]
pub struct Analysis {
    pub code: String,
    pub map: Option<String>,
    pub kind: Kind,
    pub imports: Vec<Import>,
    /// The line of an `import()` whose argument is computed.
    pub computed_line: Option<usize>,
}

/// Parses a module, transforms it if it is not JavaScript, and finds its imports.
///
/// # Errors
/// Returns an error if the module has errors of syntax.
pub fn analyse(source: Source<'_>) -> Result<Analysis, PrepareError> {
    let extension = extension(source.path);
    let variant = SourceType::from_extension(extension).unwrap_or_else(|_| SourceType::mjs());
    let has_jsx = matches!(extension, "jsx" | "tsx");
    let variant = variant.with_jsx(has_jsx).with_standard(!has_jsx);
    let candidates: &[SourceType] = match (extension, source.module_type) {
        ("mjs" | "mts", _) | (_, ModuleType::Esm) => &[variant.with_module(true)],
        ("cjs" | "cts", _) => &[variant.with_commonjs(true)],
        (_, ModuleType::Cjs | ModuleType::Unknown) => &[
            variant.with_unambiguous(true),
            variant.with_commonjs(true),
            variant.with_module(true),
        ],
    };
    let mut first_error = None;
    for candidate in candidates {
        let replaced = production::replace(&source.text, *candidate);
        let text = replaced.as_deref().unwrap_or(&source.text);
        let allocator = Allocator::default();
        let parsed = Parser::new(&allocator, text, *candidate)
            .with_options(PARSE_OPTIONS)
            .parse();
        let error = parsed.diagnostics.errors().next();
        let error = error.map(|error| syntax_error(&source, error));
        if let Some(error) = error {
            first_error.get_or_insert(error);
            continue;
        }
        let mut analysis = of_parsed(&allocator, parsed, &source)?;
        if analysis.code.is_empty() {
            analysis.code = replaced.unwrap_or(source.text);
        }
        return Ok(analysis);
    }
    Err(first_error.unwrap_or_else(|| PrepareError::Configuration("no parser".into())))
}

/// Returns the extension of a path.
pub fn extension(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// Analyses a parsed program. The code is empty if it is the parsed text.
fn of_parsed<'a>(
    allocator: &'a Allocator,
    parsed: ParserReturn<'a>,
    source: &Source<'_>,
) -> Result<Analysis, PrepareError> {
    let mut program = parsed.program;
    let source_type = program.source_type;
    if !source_type.is_typescript() && !source_type.is_jsx() {
        let is_module = parsed.module_record.has_module_syntax || source_type.is_module();
        let mentions = ["require", "module", "exports"];
        let needs_names = !is_module
            && mentions
                .iter()
                .any(|name| program.source_text.contains(name));
        let semantic = needs_names.then(|| SemanticBuilder::new().build(&program).semantic);
        let scoping = semantic.as_ref().map(|semantic| semantic.scoping());
        return Ok(collect(&program, scoping, is_module, source));
    }
    let built = SemanticBuilder::new_compiler()
        .with_excess_capacity(2.0)
        .with_enum_eval(true)
        .build(&program);
    if let Some(error) = built.diagnostics.errors().next() {
        return Err(syntax_error(source, error));
    }
    let scoping = built.semantic.into_scoping();
    let is_commonjs = is_commonjs_typescript(&program);
    let options = transform_options(source)?;
    let transformed = Transformer::new(allocator, Path::new(source.path), &options)
        .build_with_scoping(scoping, &mut program);
    if let Some(error) = transformed.diagnostics.errors().next() {
        return Err(syntax_error(source, error));
    }
    let has_module_syntax = parsed.module_record.has_module_syntax;
    let is_module =
        !is_commonjs && (source_type.is_module() || (has_module_syntax && is_module(&program)));
    if is_commonjs {
        // The transformer adds `export {}` where it removes declarations of modules.
        program.body.retain(|statement| !is_module_mark(statement));
    }
    let mut analysis = collect(&program, Some(&transformed.scoping), is_module, source);
    if is_commonjs {
        analysis.kind = Kind::Cjs;
    }
    let printed = Codegen::new()
        .with_options(CodegenOptions {
            source_map_path: Some(source.path.into()),
            ..CodegenOptions::default()
        })
        .with_scoping(Some(transformed.scoping))
        .build(&program);
    analysis.map = printed.map.map(|mut map| {
        // The engine needs positions only.
        map.set_source_contents(Vec::new());
        map.to_json_string()
    });
    // An empty text means the parsed text.
    analysis.code = match printed.code {
        code if code.is_empty() => "\n".into(),
        code => code,
    };
    Ok(analysis)
}

/// Returns whether a program is CommonJS in TypeScript's syntax: `import a = require("b")`, or
/// `export = a`.
fn is_commonjs_typescript(program: &Program<'_>) -> bool {
    let body = &program.body;
    body.iter().any(is_equals_declaration)
        && !body
            .iter()
            .any(|statement| statement.is_module_declaration() && !is_equals_declaration(statement))
}

fn is_equals_declaration(statement: &Statement<'_>) -> bool {
    matches!(
        statement,
        Statement::TSExportAssignment(_) | Statement::TSImportEqualsDeclaration(_)
    )
}

/// Returns whether a statement is `export {}`.
fn is_module_mark(statement: &Statement<'_>) -> bool {
    match statement {
        Statement::ExportNamedDeclaration(declaration) => declaration.specifiers.is_empty(),
        _ => false,
    }
}

/// Returns whether a transformed program has declarations of modules.
fn is_module(program: &Program<'_>) -> bool {
    program.body.iter().any(Statement::is_module_declaration)
}

fn collect(
    program: &Program<'_>,
    scoping: Option<&Scoping>,
    is_module: bool,
    source: &Source<'_>,
) -> Analysis {
    let names = scoping.filter(|_| !is_module);
    let mut visitor = ImportVisitor::new(names);
    visitor.visit_program(program);
    let uses_commonjs = names.is_some_and(|scoping| {
        let free = scoping.root_unresolved_references();
        ["require", "module", "exports"]
            .iter()
            .any(|name| free.contains_key(*name))
    });
    let is_cjs = !is_module
        && !visitor.has_import_meta
        && (uses_commonjs
            || source.is_of_package
            || source.module_type == ModuleType::Cjs
            || matches!(extension(source.path), "cjs" | "cts"));
    Analysis {
        code: String::new(),
        map: None,
        kind: if is_cjs { Kind::Cjs } else { Kind::Esm },
        imports: visitor.imports,
        computed_line: visitor
            .computed
            .map(|offset| position(&source.text, offset as usize).0),
    }
}

/// Returns the transformations that the project's settings ask for.
fn transform_options(source: &Source<'_>) -> Result<TransformOptions, PrepareError> {
    let settings = source.configuration.map(|file| &file.compiler_options);
    let is_set = |value: Option<bool>| value == Some(true);
    let jsx = settings.and_then(|settings| settings.jsx.as_deref());
    let runtime = match jsx {
        Some("react" | "react-native") => JsxRuntime::Classic,
        _ => JsxRuntime::Automatic,
    };
    let import_source = settings
        .and_then(|settings| settings.jsx_import_source.clone())
        .filter(|_| runtime.is_automatic());
    let text = |value: Option<&String>| value.cloned().filter(|_| runtime.is_classic());
    let pragma = text(settings.and_then(|settings| settings.jsx_factory.as_ref()));
    let pragma_frag = text(settings.and_then(|settings| settings.jsx_fragment_factory.as_ref()));
    let mut typescript = TypeScriptOptions {
        only_remove_type_imports: settings.is_some_and(|settings| {
            is_set(settings.verbatim_module_syntax) || is_set(settings.preserve_value_imports)
        }),
        ..TypeScriptOptions::default()
    };
    if let Some(pragma) = &pragma {
        typescript.jsx_pragma = pragma.clone().into();
    }
    if let Some(pragma) = &pragma_frag {
        typescript.jsx_pragma_frag = pragma.clone().into();
    }
    let mut options = TransformOptions {
        env: EnvOptions::from_target(TARGET).map_err(PrepareError::Configuration)?,
        decorator: DecoratorOptions {
            legacy: settings.is_some_and(|settings| is_set(settings.experimental_decorators)),
            emit_decorator_metadata: settings
                .is_some_and(|settings| is_set(settings.emit_decorator_metadata)),
            ..DecoratorOptions::default()
        },
        jsx: JsxOptions {
            runtime,
            import_source,
            pragma,
            pragma_frag,
            ..JsxOptions::enable()
        },
        ..TransformOptions::default()
    };
    if settings.and_then(|settings| settings.use_define_for_class_fields) == Some(false) {
        options.assumptions.set_public_class_fields = true;
        typescript.remove_class_fields_without_initializer = true;
    }
    options.typescript = typescript;
    Ok(options)
}

/// Returns the error of a parser with its position.
fn syntax_error(source: &Source<'_>, error: &OxcDiagnostic) -> PrepareError {
    let offset = error.labels.first().map_or(0, |label| label.offset());
    let (line, column) = position(&source.text, offset as usize);
    let mut message = error.message.to_string();
    if let Some(help) = &error.help {
        message = format!("{message} ({help})");
    }
    if message.contains("JSX") && extension(source.path) == "js" {
        message.push_str("; name the file .jsx or .tsx");
    }
    PrepareError::Syntax {
        file: source.path.to_owned(),
        line,
        column,
        message,
    }
}

/// Returns line and column of a byte in a text, both from 1.
pub fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    (
        line,
        before.get(start..).unwrap_or_default().chars().count() + 1,
    )
}
