//! What is repeated: words, lines, data, or a divider.

/// The piece that a loop repeats.
pub(crate) struct Unit<'a> {
    text: &'a str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Numbers, bytes or literals with something between them.
    Data,
    /// Digits, or a letter such as `A` of base64, with nothing between them.
    Digits,
    /// What dividers and borders are drawn with.
    Divider,
    /// The same in lines: a drawing.
    Drawing,
    /// Whole lines.
    Lines,
    /// With the characters of code, tables and markup.
    Structured,
    /// Any other: words, or signs that nobody draws with.
    Words,
}

impl<'a> Unit<'a> {
    /// The last `period` bytes of a text, from the next character on.
    pub(crate) fn of(text: &'a str, period: usize) -> Self {
        let from = text.len().saturating_sub(period);
        let start = (from..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
        let text = &text[start..];
        Self { text, kind: kind(text) }
    }

    pub(crate) fn chars(&self) -> usize {
        self.text.chars().count()
    }

    pub(crate) fn has_words(&self) -> bool {
        matches!(self.kind, Kind::Words | Kind::Lines | Kind::Structured)
    }

    /// Whether so many copies, of this [`width`] in all, are a loop.
    pub(crate) fn is_loop(&self, copies: usize, width: usize, is_fenced: impl FnOnce() -> bool) -> bool {
        let is_structured_loop = copies >= 20 && width >= 1500;
        match self.kind {
            Kind::Data => false,
            Kind::Digits | Kind::Divider => copies >= 5 && width >= 1000,
            Kind::Drawing => copies >= 20 && width >= 4000,
            Kind::Structured => is_structured_loop,
            Kind::Lines => {
                let is_many = copies >= 8 && width >= 400 || copies >= 5 && width >= 2000;
                is_structured_loop || is_many && !is_fenced()
            }
            Kind::Words => is_structured_loop || copies >= 5 && width >= 200 && !is_fenced(),
        }
    }
}

fn kind(unit: &str) -> Kind {
    let mut seen = unit.chars().filter(|c| !c.is_whitespace());
    let Some(first) = seen.next() else { return Kind::Drawing };
    let has_lines = unit.contains('\n');
    if unit.chars().all(|c| c.is_whitespace() || is_drawn(c)) {
        return if has_lines { Kind::Drawing } else { Kind::Divider };
    }
    // Line breaks as they stand in a JSON string.
    if unit.chars().all(|c| matches!(c, '\\' | 'n' | 'r' | 't' | ' ')) && unit.contains('\\') {
        return Kind::Words;
    }
    if is_control_token(unit) {
        return Kind::Words;
    }
    let is_one = seen.all(|c| c == first);
    if is_one && (first.is_ascii_digit() || matches!(first, 'A' | 'f' | 'F' | 'x' | 'X')) {
        return if unit.contains(char::is_whitespace) { Kind::Data } else { Kind::Digits };
    }
    if unit.chars().all(|c| c.is_ascii_digit()) {
        return Kind::Digits;
    }
    if is_data(unit) {
        return Kind::Data;
    }
    let is_markup = unit.contains(['|', '{', '}', '<', '>', ';', '=', '\t', '\\', '│']);
    let is_list = unit.contains("\",") || unit.contains("',") || has_lines && unit.matches(',').count() > 2;
    // Lines of a log are words for the smaller part.
    if is_markup || is_list || has_lines && letters_in_100(unit) < 60 {
        return Kind::Structured;
    }
    if has_lines { Kind::Lines } else { Kind::Words }
}

/// A control token of a model, such as `<|endoftext|>` or `</s>`: markup in no document. The piece may begin anywhere in it, and
/// have the space between two.
fn is_control_token(unit: &str) -> bool {
    const NAMES: [&str; 10] =
        ["s", "/s", "bos", "eos", "pad", "unk", "mask", "end_of_turn", "start_of_turn", "end_of_utterance"];
    // From its `<` on, wherever the piece begins.
    let Some((end, start)) = unit.split_once('<').filter(|_| unit.len() <= 64) else { return false };
    let token = [start, end].concat();
    let Some(name) = token.trim().strip_suffix('>') else { return false };
    let is_named = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    NAMES.contains(&name)
        || name.strip_prefix('|').and_then(|name| name.strip_suffix('|')).is_some_and(is_named)
}

fn letters_in_100(text: &str) -> usize {
    let seen = text.chars().filter(|c| !c.is_whitespace());
    let (all, letters) = seen.fold((0, 0), |(all, letters), c| {
        (all + 1, letters + usize::from(c.is_alphabetic() || !c.is_ascii()))
    });
    letters * 100 / usize::max(all, 1)
}

/// Numbers in any base, bytes, literals and short names in quotes, with separators.
fn is_data(unit: &str) -> bool {
    if !unit.contains(separates) {
        return false;
    }
    let mut tokens = unit.split(separates).filter(|token| !token.is_empty()).peekable();
    tokens.peek().is_some() && tokens.all(|token| is_number(token) || is_literal(token))
}

fn separates(c: char) -> bool {
    c.is_whitespace() || matches!(c, ',' | ';' | '|' | '[' | ']' | '(' | ')' | '{' | '}' | ':' | '/')
}

fn is_number(token: &str) -> bool {
    let token = token.trim_start_matches(['-', '+', '$', '#']);
    let digits = token.bytes().all(|byte| byte.is_ascii_hexdigit() || b"xXuUlL._-+%eE\"'".contains(&byte));
    // A word may be made of the letters of hexadecimal digits, a byte is two of them.
    digits && (token.bytes().any(|byte| byte.is_ascii_digit()) || token.len() == 2)
}

fn is_literal(token: &str) -> bool {
    matches!(
        token,
        "null"
            | "true"
            | "false"
            | "None"
            | "True"
            | "False"
            | "nil"
            | "NULL"
            | "NaN"
            | "nan"
            | "NA"
            | "N"
            | "-"
    ) || matches!(token, "\"\"" | "''" | "..." | "?" | "*" | ".")
}

/// Whether a character is one that dividers, borders and drawings are made of.
fn is_drawn(c: char) -> bool {
    matches!(
        c,
        '-' | '='
            | '_'
            | '*'
            | '~'
            | '#'
            | '+'
            | '.'
            | '|'
            | '/'
            | '\\'
            | ':'
            | '<'
            | '>'
            | '^'
            | '`'
            | '\''
            | '"'
            | ','
            | ';'
            | '&'
            | '%'
            | '@'
            | '('
            | ')'
    ) || matches!(c, '─'..='╿' | '▀'..='▟' | '■'..='◿' | '·' | '•' | '–' | '—' | '―' | '…' | '‥' | '※')
}

/// How much there is to read: characters, where those of Chinese and Japanese count twice.
pub(crate) fn width(text: &str) -> usize {
    text.chars()
        .map(|c| if matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}') { 2 } else { 1 })
        .sum()
}

/// Whether a text ends inside a code fence, or with one.
pub(crate) fn is_fenced(text: &str) -> bool {
    Fences::default().is_fenced(text)
}

/// The code fences in the beginnings of a text, each of which is longer than the one before: what was counted is not looked at
/// again, or a text of many blocks would be read once for each.
#[derive(Default)]
pub(crate) struct Fences {
    /// Those at the start of a line that has ended.
    count: usize,
    /// Where the first line begins whose end was not found, and how far it was looked for.
    line: usize,
    seen: usize,
}

impl Fences {
    /// Whether this beginning ends inside a code fence, or with one.
    pub(crate) fn is_fenced(&mut self, text: &str) -> bool {
        let is_fence = |line: &str| line.trim_start().starts_with("```");
        while let Some(length) = memchr::memchr(b'\n', text.as_bytes().get(self.seen..).unwrap_or_default()) {
            let end = self.seen + length;
            self.count += usize::from(is_fence(&text[self.line..end]));
            (self.line, self.seen) = (end + 1, end + 1);
        }
        self.seen = self.seen.max(text.len());
        let end = text.trim_end();
        let open = self.count + usize::from(is_fence(text.get(self.line..).unwrap_or_default()));
        end.ends_with("```") || end.ends_with("~~~") || open % 2 == 1
    }
}

/// Whether a text is sentences: letters and spaces for the most part, with few lines that look alike for a reason.
pub(crate) fn is_prose(text: &str) -> bool {
    let (mut all, mut letters, mut structural, mut blank) = (0_usize, 0_usize, 0_usize, 0_usize);
    for c in text.chars() {
        all += 1;
        blank += usize::from(c.is_whitespace());
        if c.is_alphabetic() || c == ' ' || !c.is_ascii() && !is_drawn(c) {
            letters += 1;
        } else if matches!(
            c,
            '|' | '{'
                | '}'
                | '['
                | ']'
                | '<'
                | '>'
                | ';'
                | '='
                | '\t'
                | '\\'
                | '_'
                | '/'
                | '"'
                | '#'
                | '$'
                | '@'
        ) {
            structural += 1;
        }
    }
    letters * 100 >= all * 80 && structural * 100 <= all && blank * 2 <= all && !is_mostly_data(text)
}

/// Whether most of a text is numbers, bytes, literals, or pieces so long that nobody reads them.
fn is_mostly_data(text: &str) -> bool {
    let tokens = text.split(separates).filter(|token| !token.is_empty());
    let (all, data) = tokens.fold((0, 0), |(all, data), token| {
        let is_blob = token.len() >= 40 && token.is_ascii();
        let len = token.len();
        (all + len, data + if is_number(token) || is_literal(token) || is_blob { len } else { 0 })
    });
    data * 2 > all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn obvious(text: &str) -> bool {
        let end = text.trim_end();
        let fences = text.lines().filter(|line| line.trim_start().starts_with("```")).count();
        end.ends_with("```") || end.ends_with("~~~") || fences % 2 == 1
    }

    proptest! {
        #[test]
        fn fences_of_one_beginning_after_another_are_those_of_each(
            text in "([`~ab ]|```|\n){0,40}", cuts in proptest::collection::vec(0..80_usize, 0..6)
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.sort_unstable();
            let mut fences = Fences::default();
            for cut in cuts {
                prop_assert_eq!(fences.is_fenced(&text[..cut]), obvious(&text[..cut]));
            }
        }
    }
}
