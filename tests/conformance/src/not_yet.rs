//! The list of cases that wait for a later step.

use std::collections::BTreeMap;

const LIST: &str = include_str!("../cases/not-yet.txt");

/// The ids of one kind that wait, each with its reason.
pub(crate) fn of(kind: &str) -> Result<BTreeMap<String, String>, String> {
    parse(LIST, kind)
}

fn parse(list: &str, kind: &str) -> Result<BTreeMap<String, String>, String> {
    let mut waiting = BTreeMap::new();
    for line in list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.splitn(3, char::is_whitespace);
        let (Some(of), Some(id), Some(reason)) = (words.next(), words.next(), words.next()) else {
            return Err(format!("not-yet.txt: `{line}` is not KIND ID REASON"));
        };
        if of == kind && waiting.insert(id.to_owned(), reason.trim().to_owned()).is_some() {
            return Err(format!("not-yet.txt: `{id}` stands twice"));
        }
    }
    Ok(waiting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_kind_id_and_reason() {
        let list = "# a comment\n\nretry x-1 needs the trail\nbreaker y-2 no\n";
        let waiting = parse(list, "retry").unwrap();
        assert_eq!(waiting.get("x-1").map(String::as_str), Some("needs the trail"));
        assert_eq!(waiting.len(), 1);
        assert!(parse("retry x-1", "retry").is_err(), "a reason must be given");
    }

    #[test]
    fn the_list_itself_is_well_formed() {
        of("retry").unwrap();
    }
}
