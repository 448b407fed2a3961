//! SPDX expressions: does an allowed choice of licences satisfy one?

/// Whether `allowed` satisfies an expression such as `(MIT OR Apache-2.0) AND Unicode-3.0`. `None` where it is no such expression.
pub(crate) fn satisfied(expression: &str, allowed: &[String]) -> Option<bool> {
    // The old way to write OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &tokens[..];
    let satisfied = either(&mut rest, allowed)?;
    rest.is_empty().then_some(satisfied)
}

fn either(rest: &mut &[&str], allowed: &[String]) -> Option<bool> {
    let mut satisfied = both(rest, allowed)?;
    while take(rest, "OR") {
        satisfied |= both(rest, allowed)?;
    }
    Some(satisfied)
}

fn both(rest: &mut &[&str], allowed: &[String]) -> Option<bool> {
    let mut satisfied = one(rest, allowed)?;
    while take(rest, "AND") {
        satisfied &= one(rest, allowed)?;
    }
    Some(satisfied)
}

fn one(rest: &mut &[&str], allowed: &[String]) -> Option<bool> {
    if take(rest, "(") {
        let satisfied = either(rest, allowed)?;
        return take(rest, ")").then_some(satisfied);
    }
    let (licence, after) = rest.split_first()?;
    if matches!(*licence, "AND" | "OR" | "WITH" | ")") {
        return None;
    }
    *rest = after;
    let mut name = (*licence).to_owned();
    if take(rest, "WITH") {
        let (exception, after) = rest.split_first()?;
        *rest = after;
        name = format!("{name} WITH {exception}");
    }
    Some(allowed.contains(&name))
}

fn take(rest: &mut &[&str], token: &str) -> bool {
    match rest.split_first() {
        Some((first, after)) if *first == token => {
            *rest = after;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_spdx_says() {
        let allowed = ["MIT".to_owned(), "Apache-2.0".to_owned(), "Unicode-3.0".to_owned()];
        for (expression, expected) in [
            ("MIT", Some(true)),
            ("GPL-3.0", Some(false)),
            ("MIT/GPL-3.0", Some(true)),
            ("GPL-3.0 OR MIT AND Unicode-3.0", Some(true)),
            ("GPL-3.0 AND MIT OR Zlib", Some(false)),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", Some(true)),
            ("(MIT OR Apache-2.0) AND GPL-3.0", Some(false)),
            ("Apache-2.0 WITH LLVM-exception", Some(false)),
            ("Apache-2.0 WITH LLVM-exception OR MIT", Some(true)),
            ("MIT OR", None),
            ("(MIT", None),
            ("MIT Apache-2.0", None),
            ("", None),
        ] {
            assert_eq!(satisfied(expression, &allowed), expected, "{expression}");
        }
    }
}
