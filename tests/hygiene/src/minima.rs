//! The lowest version that the published crates state for each dependency of theirs.

use std::collections::BTreeMap;

use crate::{
    Outcome,
    metadata::{Metadata, text},
};

/// Name to version, of all that is needed to build or use the published crates. What only their tests need does not bind a user.
pub(crate) fn of(metadata: &Metadata) -> Outcome<BTreeMap<String, String>> {
    let mut minima: BTreeMap<String, String> = BTreeMap::new();
    for package in metadata.published() {
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            // `loom` comes with a cfg of our own, for models of our own.
            if dependency["kind"] == "dev"
                || dependency["source"].is_null()
                || text(&dependency["target"]).contains("loom")
            {
                continue;
            }
            let name = text(&dependency["name"]);
            let minimum = lowest(text(&dependency["req"]))
                .ok_or_else(|| format!("{name} = \"{}\" states no minimum", text(&dependency["req"])))?;
            if let Some(other) = minima.insert(name.to_owned(), minimum.clone())
                && other != minimum
            {
                return Err(format!(
                    "{name} is asked for from {other} and from {minimum}: say it once, for the workspace"
                )
                .into());
            }
        }
    }
    Ok(minima)
}

/// The version that a caret requirement begins with, with all its three numbers.
fn lowest(requirement: &str) -> Option<String> {
    let version = requirement.strip_prefix('^')?;
    let numbers: Vec<&str> = version.split('.').collect();
    match numbers[..] {
        [major] => Some(format!("{major}.0.0")),
        [major, minor] => Some(format!("{major}.{minor}.0")),
        [_, _, _] => Some(version.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minimum_has_three_numbers_and_a_caret() {
        assert_eq!(lowest("^1.12").as_deref(), Some("1.12.0"));
        assert_eq!(lowest("^0.2.18").as_deref(), Some("0.2.18"));
        assert_eq!(lowest("^1").as_deref(), Some("1.0.0"));
        assert_eq!(lowest("*"), None);
    }
}
