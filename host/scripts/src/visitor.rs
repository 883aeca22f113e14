//! Finds the imports of a module, and the branches that never run in production.

use oxc::{
    ast::ast::{
        Argument, BinaryOperator, CallExpression, ConditionalExpression, ExportAllDeclaration,
        ExportFromDeclaration, Expression, IfStatement, ImportDeclaration, ImportExpression,
        ImportMeta, LogicalExpression, LogicalOperator, ObjectPropertyKind, PropertyKey,
        StringLiteral, TryStatement, UnaryOperator, WithClause,
    },
    ast_visit::{Visit, walk},
    semantic::Scoping,
};

/// How a module imports another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `import … from` or `export … from`.
    Static,
    /// `import()` with a literal.
    Dynamic,
    /// `require()` with a literal.
    Require,
}

/// An import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    pub specifier: String,
    pub form: Form,
    /// The position in the source as the author wrote it.
    pub offset: u32,
    /// Whether the code continues if the import fails: it stands in a `try`.
    pub is_guarded: bool,
    /// The attribute `type` of the import.
    pub attribute: Option<String>,
}

/// Collects the imports of a program.
pub struct ImportVisitor<'s> {
    pub imports: Vec<Import>,
    /// The position of an `import()` whose argument is computed.
    pub computed: Option<u32>,
    /// Whether the program uses `import.meta`.
    pub has_import_meta: bool,
    /// The names of the program, which decide whether `require` is CommonJS's. `None` if the
    /// program does not use it.
    scoping: Option<&'s Scoping>,
    tries: usize,
}

impl<'s> ImportVisitor<'s> {
    pub fn new(scoping: Option<&'s Scoping>) -> Self {
        Self {
            imports: Vec::new(),
            computed: None,
            has_import_meta: false,
            scoping,
            tries: 0,
        }
    }

    fn add(&mut self, source: &StringLiteral<'_>, form: Form, attribute: Option<String>) {
        self.imports.push(Import {
            specifier: source.value.to_string(),
            form,
            offset: source.span.start,
            is_guarded: self.tries > 0,
            attribute,
        });
    }

    /// Returns whether an expression is CommonJS's function `require`.
    fn is_require(&self, callee: &Expression<'_>) -> bool {
        let Expression::Identifier(identifier) = callee else {
            return false;
        };
        identifier.name == "require"
            && self.scoping.is_some_and(|scoping| {
                identifier
                    .reference_id
                    .get()
                    .is_none_or(|id| scoping.get_reference(id).symbol_id().is_none())
            })
    }
}

impl<'a> Visit<'a> for ImportVisitor<'_> {
    fn visit_import_declaration(&mut self, it: &ImportDeclaration<'a>) {
        self.add(
            &it.source,
            Form::Static,
            attribute(it.with_clause.as_deref()),
        );
    }

    fn visit_export_from_declaration(&mut self, it: &ExportFromDeclaration<'a>) {
        self.add(
            &it.source,
            Form::Static,
            attribute(it.with_clause.as_deref()),
        );
    }

    fn visit_export_all_declaration(&mut self, it: &ExportAllDeclaration<'a>) {
        self.add(
            &it.source,
            Form::Static,
            attribute(it.with_clause.as_deref()),
        );
    }

    fn visit_import_expression(&mut self, it: &ImportExpression<'a>) {
        match literal(&it.source) {
            Some(source) => {
                let attribute = it.options.as_ref().and_then(attribute_of_call);
                self.add(source, Form::Dynamic, attribute);
            }
            None => self.computed = self.computed.or(Some(it.span.start)),
        }
        walk::walk_import_expression(self, it);
    }

    fn visit_call_expression(&mut self, it: &CallExpression<'a>) {
        if let [Argument::StringLiteral(source)] = it.arguments.as_slice()
            && self.is_require(&it.callee)
        {
            self.add(source, Form::Require, None);
        }
        walk::walk_call_expression(self, it);
    }

    fn visit_import_meta(&mut self, _: &ImportMeta) {
        self.has_import_meta = true;
    }

    fn visit_try_statement(&mut self, it: &TryStatement<'a>) {
        let catches = it.handler.is_some();
        self.tries += usize::from(catches);
        self.visit_block_statement(&it.block);
        self.tries -= usize::from(catches);
        if let Some(handler) = &it.handler {
            self.visit_catch_clause(handler);
        }
        if let Some(finalizer) = &it.finalizer {
            self.visit_block_statement(finalizer);
        }
    }

    fn visit_if_statement(&mut self, it: &IfStatement<'a>) {
        self.visit_expression(&it.test);
        let known = truth(&it.test);
        if known != Some(false) {
            self.visit_statement(&it.consequent);
        }
        if let Some(alternate) = it.alternate.as_ref().filter(|_| known != Some(true)) {
            self.visit_statement(alternate);
        }
    }

    fn visit_conditional_expression(&mut self, it: &ConditionalExpression<'a>) {
        self.visit_expression(&it.test);
        let known = truth(&it.test);
        if known != Some(false) {
            self.visit_expression(&it.consequent);
        }
        if known != Some(true) {
            self.visit_expression(&it.alternate);
        }
    }

    fn visit_logical_expression(&mut self, it: &LogicalExpression<'a>) {
        self.visit_expression(&it.left);
        let skips = match it.operator {
            LogicalOperator::And => Some(false),
            LogicalOperator::Or => Some(true),
            LogicalOperator::Coalesce => None,
        };
        if skips.is_none() || truth(&it.left) != skips {
            self.visit_expression(&it.right);
        }
    }
}

/// Returns the value of an expression that is a literal text.
fn literal<'e, 'a>(expression: &'e Expression<'a>) -> Option<&'e StringLiteral<'a>> {
    match expression {
        Expression::StringLiteral(literal) => Some(literal),
        Expression::ParenthesizedExpression(inner) => literal(&inner.expression),
        _ => None,
    }
}

/// Returns whether an expression is true or false for certain.
fn truth(expression: &Expression<'_>) -> Option<bool> {
    match expression {
        Expression::BooleanLiteral(literal) => Some(literal.value),
        Expression::StringLiteral(literal) => Some(!literal.value.is_empty()),
        Expression::ParenthesizedExpression(inner) => truth(&inner.expression),
        Expression::UnaryExpression(unary) if unary.operator == UnaryOperator::LogicalNot => {
            truth(&unary.argument).map(|value| !value)
        }
        Expression::BinaryExpression(binary) => {
            let (left, right) = (literal(&binary.left)?, literal(&binary.right)?);
            let is_equal = left.value == right.value;
            match binary.operator {
                BinaryOperator::Equality | BinaryOperator::StrictEquality => Some(is_equal),
                BinaryOperator::Inequality | BinaryOperator::StrictInequality => Some(!is_equal),
                _ => None,
            }
        }
        Expression::LogicalExpression(logical) => {
            let (left, right) = (truth(&logical.left), truth(&logical.right));
            match logical.operator {
                LogicalOperator::And if left == Some(false) || right == Some(false) => Some(false),
                LogicalOperator::Or if left == Some(true) || right == Some(true) => Some(true),
                LogicalOperator::And | LogicalOperator::Or if left.is_some() => right,
                _ => None,
            }
        }
        _ => None,
    }
}

/// Returns the attribute `type` of a static import.
fn attribute(clause: Option<&WithClause<'_>>) -> Option<String> {
    let entries = &clause?.with_entries;
    let entry = entries
        .iter()
        .find(|entry| entry.key.as_arena_str().as_str() == "type")?;
    Some(entry.value.value.to_string())
}

/// Returns the attribute `type` in the second argument of `import()`.
fn attribute_of_call(options: &Expression<'_>) -> Option<String> {
    let attributes = property(options, "with")?;
    Some(literal(property(attributes, "type")?)?.value.to_string())
}

fn property<'e, 'a>(object: &'e Expression<'a>, name: &str) -> Option<&'e Expression<'a>> {
    let Expression::ObjectExpression(object) = object else {
        return None;
    };
    object
        .properties
        .iter()
        .find_map(|property| match property {
            ObjectPropertyKind::ObjectProperty(property) => match &property.key {
                PropertyKey::StaticIdentifier(key) if key.name == name => Some(&property.value),
                PropertyKey::StringLiteral(key) if key.value == name => Some(&property.value),
                _ => None,
            },
            ObjectPropertyKind::SpreadProperty(_) => None,
        })
}
