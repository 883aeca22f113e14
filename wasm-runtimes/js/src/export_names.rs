//! Finds the names that a CommonJS module exports without running it.
//!
//! An ECMAScript module that imports a CommonJS module is linked before any of them runs, so the
//! names for `import *` and `export *` must be known from the text. This reader knows the forms
//! that compilers and bundlers write. A name that it misses can still be imported by name
//! (`modules.py` explains open modules).

/// The exports of a module, as far as its text shows them.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Exports {
    /// Names of exports, without duplicates.
    pub names: Vec<String>,
    /// Specifiers of modules whose exports this module exports, too.
    pub reexports: Vec<String>,
}

/// Returns whether a text assigns to `exports` or `module.exports`, and has no `import` or `export`
/// declaration and no `import.meta`.
pub(crate) fn is_commonjs(text: &str) -> bool {
    if memchr::memmem::find(text.as_bytes(), b"exports").is_none() {
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
            Token::Word("export") if !is_property => match tokens.get(at + 1) {
                Some(Token::Word(_) | Token::Mark(b'{' | b'*')) => return false,
                _ => {}
            },
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
    let mut exports = Exports::default();
    if memchr::memmem::find(text.as_bytes(), b"export").is_none() {
        return exports;
    }
    let tokens = tokens(text);
    let mut at = 0;
    while at < tokens.len() {
        at = exports.read(&tokens, at);
    }
    exports
}

impl Exports {
    fn add(&mut self, name: &str) {
        if name != "default" && !self.names.iter().any(|other| other == name) {
            self.names.push(name.to_owned());
        }
    }

    fn add_reexport(&mut self, specifier: &str) {
        if !self.reexports.iter().any(|other| other == specifier) {
            self.reexports.push(specifier.to_owned());
        }
    }

    /// Reads what begins with the token `at`. Returns the token to go on with.
    fn read(&mut self, tokens: &[Token<'_>], at: usize) -> usize {
        let rest = tokens.get(at..).unwrap_or_default();
        if at > 0 && is_mark(tokens.get(at - 1), b'.') {
            return at + 1;
        }
        if let Some(length) = exports_length(rest) {
            let after = rest.get(length..).unwrap_or_default();
            match after {
                [Token::Mark(b'.'), Token::Word(name), Token::Mark(b'='), ..] => self.add(name),
                [
                    Token::Mark(b'['),
                    Token::Text(name),
                    Token::Mark(b']'),
                    Token::Mark(b'='),
                    ..,
                ] => {
                    self.add(name);
                }
                [Token::Mark(b'='), ..] if length == 3 => {
                    self.read_value(after.get(1..).unwrap_or_default())
                }
                _ => {}
            }
            return at + length;
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
                at + 4
            }
            // __export(exports, { name: … }), as esbuild writes it.
            [
                Token::Word("__export" | "__reExport" | "__exportStar"),
                Token::Mark(b'('),
                after @ ..,
            ] => {
                self.read_helper(after);
                at + 2
            }
            _ => at + 1,
        }
    }

    /// Reads the value that is assigned to `module.exports`.
    fn read_value(&mut self, mut value: &[Token<'_>]) {
        // module.exports = exports = …, and __toCommonJS(name) after it, export nothing new.
        while let Some(length) = exports_length(value)
            && is_mark(value.get(length), b'=')
        {
            value = value.get(length + 1..).unwrap_or_default();
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
            [Token::Mark(b'{'), members @ ..] => self.read_members(members),
            _ => {}
        }
    }

    /// Reads the arguments of a helper function of a compiler.
    fn read_helper(&mut self, arguments: &[Token<'_>]) {
        for (at, token) in arguments.iter().enumerate().take(8) {
            match token {
                Token::Mark(b')') => return,
                Token::Mark(b'{') => {
                    self.read_members(arguments.get(at + 1..).unwrap_or_default());
                    return;
                }
                Token::Word("require") => {
                    if let Some([Token::Mark(b'('), Token::Text(name), ..]) =
                        arguments.get(at + 1..)
                    {
                        self.add_reexport(name);
                    }
                    return;
                }
                _ => {}
            }
        }
    }

    /// Reads the members of an object literal.
    fn read_members(&mut self, mut members: &[Token<'_>]) {
        loop {
            match members {
                [
                    Token::Mark(b'.'),
                    Token::Mark(b'.'),
                    Token::Mark(b'.'),
                    rest @ ..,
                ] => {
                    if let [
                        Token::Word("require"),
                        Token::Mark(b'('),
                        Token::Text(name),
                        ..,
                    ] = rest
                    {
                        self.add_reexport(name);
                    }
                }
                [
                    Token::Word("get" | "set" | "async"),
                    Token::Word(name) | Token::Text(name),
                    ..,
                ] => {
                    self.add(name);
                }
                [
                    Token::Word(name) | Token::Text(name),
                    Token::Mark(b',' | b'}' | b':' | b'('),
                    ..,
                ] => {
                    self.add(name);
                }
                [Token::Mark(b'}'), ..] | [] => return,
                _ => {}
            }
            // To the next member.
            let mut depth = 0;
            let mut at = 0;
            loop {
                match members.get(at) {
                    None => return,
                    Some(Token::Mark(b'(' | b'[' | b'{')) => depth += 1,
                    Some(Token::Mark(b'}')) if depth == 0 => return,
                    Some(Token::Mark(b')' | b']' | b'}')) => depth -= 1,
                    Some(Token::Mark(b',')) if depth == 0 => break,
                    _ => {}
                }
                at += 1;
            }
            members = members.get(at + 1..).unwrap_or_default();
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
                let rest = bytes.get(at + 2..).unwrap_or_default();
                at = memchr::memmem::find(rest, b"*/").map_or(bytes.len(), |end| at + 2 + end + 2);
            }
            b'/' if may_be_regex(tokens.last()) => {
                at = end_of_regex(bytes, at);
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
    memchr::memchr(b'\n', rest).map_or(bytes.len(), |end| from + end)
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

fn end_of_regex(bytes: &[u8], from: usize) -> usize {
    let mut is_class = false;
    let mut at = from + 1;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'\\' => at += 1,
            b'[' => is_class = true,
            b']' => is_class = false,
            b'/' if !is_class => return at,
            b'\n' => return from + 1,
            _ => {}
        }
    }
    from + 1
}

fn end_of_string(bytes: &[u8], from: usize, quote: u8) -> usize {
    let mut at = from + 1;
    while let Some(&byte) = bytes.get(at) {
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
