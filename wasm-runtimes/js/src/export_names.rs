//! Finds the names that a CommonJS module exports without running it.
//!
//! An ECMAScript module that imports a CommonJS module is linked before any of them runs, so the
//! names for `import *` and `export *` must be known from the text. This reader knows the forms
//! that compilers and bundlers write. A name that it misses can still be imported by name
//! (`modules.py` explains open modules).
//!
//! The time is linear in the length of the text, whatever the text is.

use std::collections::BTreeSet;

/// The exports of a module, as far as its text shows them.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Exports {
    /// Names of exports, sorted and without duplicates.
    pub names: Vec<String>,
    /// Specifiers of modules whose exports this module exports, too.
    pub reexports: Vec<String>,
}

#[cfg(test)]
thread_local! {
    /// How many tokens, and bytes of regular expressions and strings, were examined.
    pub(crate) static EXAMINED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts work, so that tests can check that it is linear.
fn examine(_count: usize) {
    #[cfg(test)]
    EXAMINED.set(EXAMINED.get() + _count);
}

/// Returns whether a text assigns to `exports` or `module.exports`, and has no `import` or `export`
/// declaration and no `import.meta`.
pub(crate) fn is_commonjs(text: &str) -> bool {
    if !text.contains("exports") {
        return false;
    }
    let tokens = tokens(text);
    let mut assigns = false;
    for (at, token) in tokens.iter().enumerate() {
        let is_property = at > 0 && is_mark(tokens.get(at - 1), b'.');
        match token {
            Token::Word("import") if !is_property => match tokens.get(at + 1) {
                // `import(…)` is in both kinds of module.
                Some(Token::Mark(b'(' | b':' | b'=' | b',' | b'}' | b')')) | None => {}
                _ => return false,
            },
            Token::Word("export") if !is_property => {
                let next = tokens.get(at + 1);
                if let Some(Token::Word(_) | Token::Mark(b'{' | b'*')) = next {
                    return false;
                }
            }
            Token::Word("exports") => {
                let next = tokens.get(at + 1);
                assigns |= is_property
                    && is_word(at.checked_sub(2).and_then(|at| tokens.get(at)), "module")
                    || !is_property && (is_mark(next, b'.') || is_mark(next, b'['))
                    || is_mark(at.checked_sub(1).and_then(|at| tokens.get(at)), b'(')
                        && is_mark(next, b',');
            }
            _ => {}
        }
    }
    assigns
}

/// Returns the exports that a text shows.
pub(crate) fn find(text: &str) -> Exports {
    if !text.contains("export") {
        return Exports::default();
    }
    let tokens = tokens(text);
    let mut reader = Reader::default();
    for at in 0..tokens.len() {
        reader.read(&tokens, at);
    }
    Exports {
        names: reader.names.into_iter().collect(),
        reexports: reader.reexports,
    }
}

/// Reads the tokens of a module once, from the first to the last.
#[derive(Default)]
struct Reader {
    names: BTreeSet<String>,
    reexports: Vec<String>,
    known_reexports: BTreeSet<String>,
    /// The token with which a value of `module.exports` begins.
    value_at: Option<usize>,
    /// The braces ahead whose members are exports. They are among the next few tokens.
    literals_at: BTreeSet<usize>,
    /// Open brackets: true if the bracket's members are exports.
    brackets: Vec<bool>,
    /// The token with which a member of such a bracket begins.
    member_at: Option<usize>,
}

impl Reader {
    fn add(&mut self, name: &str) {
        if name != "default" && !self.names.contains(name) {
            self.names.insert(name.to_owned());
        }
    }

    fn add_reexport(&mut self, specifier: &str) {
        if self.known_reexports.insert(specifier.to_owned()) {
            self.reexports.push(specifier.to_owned());
        }
    }

    /// Reads what begins with the token `at`, looking ahead a few tokens.
    fn read(&mut self, tokens: &[Token<'_>], at: usize) {
        examine(1);
        let rest = tokens.get(at..).unwrap_or_default();
        if self.value_at == Some(at) {
            self.read_value(rest, at);
        }
        if self.member_at == Some(at) {
            self.read_member(rest);
        }
        match rest.first() {
            Some(Token::Mark(b'(' | b'[' | b'{')) => {
                let is_literal = self.literals_at.remove(&at);
                self.brackets.push(is_literal);
                self.member_at = is_literal.then_some(at + 1);
            }
            Some(Token::Mark(b')' | b']' | b'}')) => {
                self.brackets.pop();
            }
            Some(Token::Mark(b',')) if self.brackets.last() == Some(&true) => {
                self.member_at = Some(at + 1);
            }
            Some(Token::Word(_)) if at == 0 || !is_mark(tokens.get(at - 1), b'.') => {
                self.read_word(rest, at);
            }
            _ => {}
        }
    }

    /// Reads what begins with a word that is no property.
    fn read_word(&mut self, rest: &[Token<'_>], at: usize) {
        if let Some(length) = exports_length(rest) {
            match rest.get(length..).unwrap_or_default() {
                [Token::Mark(b'.'), Token::Word(name), Token::Mark(b'='), ..]
                | [
                    Token::Mark(b'['),
                    Token::Text(name),
                    Token::Mark(b']'),
                    Token::Mark(b'='),
                    ..,
                ] => self.add(name),
                [Token::Mark(b'='), ..] if length == 3 => self.value_at = Some(at + length + 1),
                _ => {}
            }
            return;
        }
        match rest {
            // Object.defineProperty(exports, "name", …
            [
                Token::Word("Object"),
                Token::Mark(b'.'),
                Token::Word("defineProperty"),
                Token::Mark(b'('),
                after @ ..,
            ] => {
                if let Some(length) = exports_length(after)
                    && let [Token::Mark(b','), Token::Text(name), ..] =
                        after.get(length..).unwrap_or_default()
                {
                    self.add(name);
                }
            }
            // __export(exports, { name: … }), as esbuild writes it.
            [
                Token::Word("__export" | "__reExport" | "__exportStar"),
                Token::Mark(b'('),
                after @ ..,
            ] => self.read_helper(after, at + 2),
            _ => {}
        }
    }

    /// Reads the value that is assigned to `module.exports`, from the token `at` on.
    fn read_value(&mut self, value: &[Token<'_>], at: usize) {
        // module.exports = exports = …, and __toCommonJS(name) after it, export nothing new.
        if let Some(length) = exports_length(value)
            && is_mark(value.get(length), b'=')
        {
            self.value_at = Some(at + length + 1);
            return;
        }
        match value {
            [
                Token::Word("require"),
                Token::Mark(b'('),
                Token::Text(name),
                Token::Mark(b')'),
                ..,
            ] => {
                self.add_reexport(name);
            }
            [Token::Mark(b'{'), ..] => {
                self.literals_at.insert(at);
            }
            _ => {}
        }
    }

    /// Reads the arguments of a helper function of a compiler, from the token `at` on.
    fn read_helper(&mut self, arguments: &[Token<'_>], at: usize) {
        for (index, token) in arguments.iter().enumerate().take(8) {
            match token {
                Token::Mark(b')') => return,
                Token::Mark(b'{') => {
                    self.literals_at.insert(at + index);
                    return;
                }
                Token::Word("require") => {
                    if let Some([Token::Mark(b'('), Token::Text(name), ..]) =
                        arguments.get(index + 1..)
                    {
                        self.add_reexport(name);
                    }
                    return;
                }
                _ => {}
            }
        }
    }

    /// Reads a member of an object literal.
    fn read_member(&mut self, member: &[Token<'_>]) {
        match member {
            [
                Token::Mark(b'.'),
                Token::Mark(b'.'),
                Token::Mark(b'.'),
                Token::Word("require"),
                Token::Mark(b'('),
                Token::Text(name),
                ..,
            ] => self.add_reexport(name),
            [
                Token::Word("get" | "set" | "async"),
                Token::Word(name) | Token::Text(name),
                ..,
            ]
            | [
                Token::Word(name) | Token::Text(name),
                Token::Mark(b',' | b'}' | b':' | b'('),
                ..,
            ] => self.add(name),
            _ => {}
        }
    }
}

/// Returns how many tokens `exports` or `module.exports` has at the beginning of these.
fn exports_length(tokens: &[Token<'_>]) -> Option<usize> {
    match tokens {
        [Token::Word("exports"), ..] => Some(1),
        [
            Token::Word("module"),
            Token::Mark(b'.'),
            Token::Word("exports"),
            ..,
        ] => Some(3),
        _ => None,
    }
}

#[derive(Debug, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    /// The content of a string without escapes.
    Text(&'a str),
    /// Any other character. `==` and `=>` are two marks, the first of which is no `=`.
    Mark(u8),
}

fn is_mark(token: Option<&Token<'_>>, mark: u8) -> bool {
    token == Some(&Token::Mark(mark))
}

fn is_word(token: Option<&Token<'_>>, word: &str) -> bool {
    token == Some(&Token::Word(word))
}

/// Returns the tokens of a text, without comments, templates and regular expressions.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let byte = |at: usize| bytes.get(at).copied().unwrap_or_default();
    let mut tokens = Vec::new();
    // Open braces: true if the brace is that of `${` in a template.
    let mut braces: Vec<bool> = Vec::new();
    // A regular expression that began before here would not end in its line.
    let mut no_regex_before = 0;
    let mut at = if text.starts_with("#!") {
        end_of_line(bytes, 0)
    } else {
        0
    };
    while at < bytes.len() {
        let first = byte(at);
        match first {
            b'/' if byte(at + 1) == b'/' => at = end_of_line(bytes, at),
            b'/' if byte(at + 1) == b'*' => {
                let rest = text.get(at + 2..).unwrap_or_default();
                at = rest.find("*/").map_or(bytes.len(), |end| at + 2 + end + 2);
            }
            b'/' => {
                let mut end = at + 1;
                if at >= no_regex_before && may_be_regex(tokens.last()) {
                    match end_of_regex(bytes, at) {
                        Ok(of_regex) => end = of_regex,
                        Err(examined) => no_regex_before = examined,
                    }
                }
                at = end;
                tokens.push(Token::Mark(b'/'));
            }
            b'"' | b'\'' => {
                let end = end_of_string(bytes, at, first);
                let content = text.get(at + 1..end.saturating_sub(1)).unwrap_or_default();
                tokens.push(Token::Text(content));
                at = end;
            }
            b'`' => {
                at = end_of_template(bytes, at + 1, &mut braces);
                tokens.push(Token::Mark(b'`'));
            }
            b'{' => {
                braces.push(false);
                tokens.push(Token::Mark(b'{'));
                at += 1;
            }
            b'}' => {
                at += 1;
                if braces.pop() == Some(true) {
                    at = end_of_template(bytes, at, &mut braces);
                    tokens.push(Token::Mark(b'`'));
                } else {
                    tokens.push(Token::Mark(b'}'));
                }
            }
            b'=' if matches!(byte(at + 1), b'=' | b'>') => {
                tokens.push(Token::Mark(b'?'));
                at += 2;
            }
            _ if is_word_byte(first) => {
                let from = at;
                while is_word_byte(byte(at)) {
                    at += 1;
                }
                tokens.push(Token::Word(text.get(from..at).unwrap_or_default()));
            }
            _ => {
                if !first.is_ascii_whitespace() {
                    tokens.push(Token::Mark(first));
                }
                at += 1;
            }
        }
    }
    tokens
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

fn end_of_line(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    let mut rest = rest.iter();
    rest.position(|byte| *byte == b'\n')
        .map_or(bytes.len(), |end| from + end)
}

/// Returns whether a slash after that token begins a regular expression.
fn may_be_regex(before: Option<&Token<'_>>) -> bool {
    match before {
        None => true,
        Some(Token::Text(_)) => false,
        Some(Token::Word(word)) => matches!(
            *word,
            "return"
                | "typeof"
                | "case"
                | "in"
                | "of"
                | "delete"
                | "void"
                | "throw"
                | "new"
                | "else"
                | "do"
        ),
        Some(Token::Mark(mark)) => !matches!(mark, b')' | b']' | b'}' | b'`'),
    }
}

/// Returns the end of a regular expression. If it does not end in its line, the slash is an
/// operator: returns as an error how far the text was read.
fn end_of_regex(bytes: &[u8], from: usize) -> Result<usize, usize> {
    let mut is_class = false;
    let mut at = from + 1;
    while let Some(&byte) = bytes.get(at) {
        examine(1);
        at += 1;
        match byte {
            b'\\' => at += 1,
            b'[' => is_class = true,
            b']' => is_class = false,
            b'/' if !is_class => return Ok(at),
            b'\n' => break,
            _ => {}
        }
    }
    Err(at)
}

fn end_of_string(bytes: &[u8], from: usize, quote: u8) -> usize {
    let mut at = from + 1;
    while let Some(&byte) = bytes.get(at) {
        examine(1);
        at += 1;
        match byte {
            b'\\' => at += 1,
            b'\n' => return at,
            _ if byte == quote => return at,
            _ => {}
        }
    }
    bytes.len()
}

/// Returns the end of a template, or of its part before `${`, whose brace it adds.
fn end_of_template(bytes: &[u8], from: usize, braces: &mut Vec<bool>) -> usize {
    let mut at = from;
    while let Some(&byte) = bytes.get(at) {
        examine(1);
        at += 1;
        match byte {
            b'\\' => at += 1,
            b'`' => return at,
            b'$' if bytes.get(at) == Some(&b'{') => {
                braces.push(true);
                return at + 1;
            }
            _ => {}
        }
    }
    bytes.len()
}
