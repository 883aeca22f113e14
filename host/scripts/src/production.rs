//! Replaces `process.env.NODE_ENV` by `"production"`.
//!
//! Packages choose between their builds for development and production by it. The text that
//! replaces it has the same length, so positions in errors stay those of the author's file.

use oxc::{
    allocator::Allocator,
    ast::ast::{Expression, MemberExpression},
    ast_visit::{Visit, walk},
    parser::Parser,
    semantic::{Scoping, SemanticBuilder},
    span::{GetSpan as _, SourceType, Span},
};

use crate::analysis::PARSE_OPTIONS;

const VALUE: &str = "\"production\"";

/// Returns a source with all occurrences replaced, or `None` if there are none or it has errors of
/// syntax.
pub fn replace(source: &str, source_type: SourceType) -> Option<String> {
    if !source.contains("NODE_ENV") {
        return None;
    }
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, source, source_type)
        .with_options(PARSE_OPTIONS)
        .parse();
    if parsed.panicked {
        return None;
    }
    let semantic = SemanticBuilder::new().build(&parsed.program).semantic;
    let mut visitor = Occurrences {
        scoping: semantic.scoping(),
        spans: Vec::new(),
    };
    visitor.visit_program(&parsed.program);
    let mut bytes = source.as_bytes().to_vec();
    for span in &visitor.spans {
        overwrite(bytes.get_mut(span.start as usize..span.end as usize)?);
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|_| !visitor.spans.is_empty())
}

/// Writes the value over an expression. Line breaks stay.
fn overwrite(expression: &mut [u8]) {
    let mut value = VALUE.bytes();
    let (first, rest) = expression.split_at_mut(VALUE.len().min(expression.len()));
    if first.contains(&b'\n') {
        // The value would be torn: such a formatting occurs nowhere in practice.
        return;
    }
    first.fill_with(|| value.next().unwrap_or(b' '));
    for byte in rest {
        if *byte != b'\n' && *byte != b'\r' {
            *byte = b' ';
        }
    }
}

struct Occurrences<'s> {
    scoping: &'s Scoping,
    spans: Vec<Span>,
}

impl Occurrences<'_> {
    fn is_node_env(&self, expression: &Expression<'_>) -> bool {
        let Some(variable) = expression.as_member_expression() else {
            return false;
        };
        variable.static_property_name() == Some("NODE_ENV")
            && inner(variable).is_some_and(|environment| {
                environment.static_property_name() == Some("env")
                    && self.is_process(environment.object())
            })
    }

    fn is_process(&self, expression: &Expression<'_>) -> bool {
        match expression {
            Expression::Identifier(identifier) => {
                identifier.name == "process"
                    && identifier
                        .reference_id
                        .get()
                        .is_none_or(|id| self.scoping.get_reference(id).symbol_id().is_none())
            }
            Expression::StaticMemberExpression(member) => {
                let is_global = matches!(
                    &member.object,
                    Expression::Identifier(object) if object.name == "globalThis"
                );
                is_global && member.property.name == "process"
            }
            _ => false,
        }
    }
}

fn inner<'e, 'a>(variable: &'e MemberExpression<'a>) -> Option<&'e MemberExpression<'a>> {
    variable.object().as_member_expression()
}

impl<'a> Visit<'a> for Occurrences<'_> {
    // A target of an assignment is no expression, so it stays.
    fn visit_expression(&mut self, it: &Expression<'a>) {
        if self.is_node_env(it) {
            self.spans.push(it.span());
        } else {
            walk::walk_expression(self, it);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(source: &str) -> Option<String> {
        replace(source, SourceType::cjs())
    }

    #[test]
    fn reads_are_replaced_in_place() {
        let source = "if (process.env.NODE_ENV === 'production') { a() }";
        let expected = "if (\"production\"         === 'production') { a() }";
        assert_eq!(replaced(source).unwrap(), expected);
        let source = "x = process.env[\"NODE_ENV\"] !== y";
        assert_eq!(replaced(source).unwrap().len(), source.len());
        assert!(replaced("globalThis.process.env.NODE_ENV").is_some());
    }

    #[test]
    fn other_uses_stay() {
        for source in [
            "process.env.NODE_ENV = 'test'",
            "function f(process) { return process.env.NODE_ENV }",
            "'process.env.NODE_ENV'",
            "process.env.NODE_ENVIRONMENT",
            "config.env.NODE_ENV",
            "if (process.env.NODE_ENV",
        ] {
            assert_eq!(replaced(source), None, "{source}");
        }
    }
}
