//! Which types of other crates our public API names.
//!
//! Such a type ties our version to its crate's: a new major version of one is a new major version of ours. So they are few, they are written
//! down, and those of crates below 1.0 stand behind a feature that carries the version (but for tower's two, on which all of tower rests).

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::Path,
};

use serde_json::Value;

use crate::{
    Outcome,
    metadata::{Metadata, text, versioned},
};

/// What comes with Rust.
const STANDARD: [&str; 5] = ["alloc", "core", "proc_macro", "std", "test"];

/// Below 1.0, and in every signature of every layer there is.
const ALLOWED_BELOW_ONE: [&str; 2] = ["tower-layer", "tower-service"];

pub(crate) fn check(metadata: &Metadata, all: &Path, plain: &Path, list: &Path, write: bool) -> Outcome {
    let versions = versions(metadata);
    let mut lines = Vec::new();
    let mut wrong = Vec::new();
    for package in metadata.published() {
        let name = text(&package["name"]);
        let read = |folder: &Path| -> Outcome<BTreeSet<Named>> {
            let file = folder.join(format!("{}.json", name.replace('-', "_")));
            let json = std::fs::read(&file).map_err(|err| format!("{}: {err}", file.display()))?;
            Ok(foreign(&serde_json::from_slice(&json)?, &versions))
        };
        let plain = read(plain)?;
        for found in read(all)? {
            let behind = match allowed(&found, plain.contains(&found), package) {
                Ok(behind) => behind,
                Err(why) => {
                    wrong.push(format!("{name} names {}: {why}", found.path));
                    continue;
                }
            };
            lines.push(format!("{name}: {} {}{behind}: {}", found.package, found.version, found.path));
        }
    }
    let now = lines.join("\n") + "\n";
    if write {
        std::fs::write(list, &now)?;
    }
    wrong.extend(difference(&std::fs::read_to_string(list)?, &now));
    if wrong.is_empty() {
        println!("{} public types of other crates, as {} says", lines.len(), list.display());
        return Ok(());
    }
    wrong
        .push(format!("{} is what was agreed to; `.ci/public-types --write` writes it anew", list.display()));
    Err(wrong.join("\n").into())
}

/// A type, trait or item of another crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    package: String,
    version: String,
    path: String,
}

/// The feature that it stands behind, as the list says it, or why it must not be named.
fn allowed(found: &Named, always: bool, package: &Value) -> Result<String, String> {
    if !found.version.starts_with("0.") || ALLOWED_BELOW_ONE.contains(&&*found.package) {
        return Ok(String::new());
    }
    if always {
        return Err(format!(
            "{} {} is below 1.0, and behind no feature of that version",
            found.package, found.version
        ));
    }
    let digits = found.version.replace('.', "");
    let features = package["features"].as_object();
    let feature = features.into_iter().flat_map(|features| features.keys()).find(|feature| {
        versioned(feature).is_some_and(|(_, version)| version == digits)
            && versioned(feature).is_some_and(|(name, _)| found.package.starts_with(name))
    });
    match feature {
        Some(feature) => Ok(format!(" ({feature})")),
        None => Err(format!("no feature says {} {digits}", found.package)),
    }
}

/// The compatible version (`1`, `0.13`) of each package, and its name, by the name of its library.
fn versions(metadata: &Metadata) -> BTreeMap<String, Vec<(String, String)>> {
    let mut found: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for package in &metadata.packages {
        let library = package["targets"].as_array().into_iter().flatten().find(|target| {
            target["kind"]
                .as_array()
                .is_some_and(|kinds| kinds.iter().any(|kind| kind == "lib" || kind == "proc-macro"))
        });
        let Some(library) = library else { continue };
        let entry = (text(&package["name"]).to_owned(), compatible(text(&package["version"])));
        // A member's own types are no other crate's.
        let ours = metadata.members.iter().any(|member| package["id"] == member.as_str());
        let of_library = found.entry(text(&library["name"]).replace('-', "_")).or_default();
        if !ours && !of_library.contains(&entry) {
            of_library.push(entry);
        }
    }
    found
}

fn compatible(version: &str) -> String {
    let mut numbers = version.split('.');
    match (numbers.next(), numbers.next()) {
        (Some("0"), Some(minor)) => format!("0.{minor}"),
        (Some(major), _) => major.to_owned(),
        (None, _) => version.to_owned(),
    }
}

/// Everything of other crates that the public items of a crate, and what they implement, name.
fn foreign(json: &Value, versions: &BTreeMap<String, Vec<(String, String)>>) -> BTreeSet<Named> {
    let index = &json["index"];
    let mut to_visit: Vec<u64> = json["root"].as_u64().into_iter().collect();
    // What we implement of others' traits for others' types hangs on nothing of ours.
    for item in index.as_object().into_iter().flat_map(|index| index.values()) {
        if item["inner"].get("impl").is_some() {
            to_visit.extend(item["id"].as_u64());
        }
    }
    let mut seen = HashSet::new();
    let mut named = BTreeSet::new();
    while let Some(id) = to_visit.pop() {
        if !seen.insert(id) {
            continue;
        }
        let item = &index[id.to_string()];
        if item["crate_id"] == 0 {
            let made = &item["inner"]["impl"];
            // Blanket implementations and auto traits are not ours to promise.
            if made["blanket_impl"].is_null() && made["is_synthetic"] != true {
                ids(&item["inner"], &mut to_visit);
            }
        } else if let Some(found) = of_other_crate(&json["paths"][id.to_string()], json, versions) {
            named.insert(found);
        }
    }
    named
}

fn of_other_crate(
    path: &Value,
    json: &Value,
    versions: &BTreeMap<String, Vec<(String, String)>>,
) -> Option<Named> {
    let library = text(&json["external_crates"][path["crate_id"].as_u64()?.to_string()]["name"]).to_owned();
    if library.is_empty() || STANDARD.contains(&&*library) || library.starts_with("rustc_") {
        return None;
    }
    let (package, version) = match versions.get(&library) {
        Some(of_library) => of_library.first()?.clone(), // without an entry it is a member
        None => (library, "unknown".to_owned()),
    };
    let segments: Vec<&str> = path["path"].as_array()?.iter().filter_map(Value::as_str).collect();
    // What a macro leaves in a bound, for itself: nobody else can name it.
    if segments.contains(&"__private") {
        return None;
    }
    Some(Named { package, version, path: segments.join("::") })
}

/// The ids of all items that this names or holds.
fn ids(value: &Value, found: &mut Vec<u64>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (&**key, value) {
                    ("id", Value::Number(_)) => found.extend(value.as_u64()),
                    // A type's own list of what it implements; an `impl` has `items` too.
                    (
                        "items" | "variants" | "impls" | "fields" | "tuple" | "implementations",
                        Value::Array(inside),
                    ) => {
                        found.extend(inside.iter().filter_map(Value::as_u64));
                        ids(value, found);
                    }
                    _ => ids(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| ids(value, found)),
        _ => {}
    }
}

fn difference(agreed: &str, now: &str) -> Vec<String> {
    let (agreed, now): (BTreeSet<_>, BTreeSet<_>) = (agreed.lines().collect(), now.lines().collect());
    let gone = agreed.difference(&now).map(|line| format!("no longer named: {line}"));
    gone.chain(now.difference(&agreed).map(|line| format!("named now: {line}"))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(package: &str, version: &str) -> Named {
        Named { package: package.into(), version: version.into(), path: format!("{package}::X") }
    }

    #[test]
    fn a_crate_below_one_is_named_only_behind_a_feature_of_its_version() {
        let package = json!({"features": {"reqwest-013": [], "metrics": []}});
        assert_eq!(allowed(&named("http", "1"), true, &package), Ok(String::new()));
        assert_eq!(allowed(&named("tower-layer", "0.3"), true, &package), Ok(String::new()));
        assert_eq!(allowed(&named("reqwest", "0.13"), false, &package), Ok(" (reqwest-013)".into()));
        assert!(allowed(&named("reqwest", "0.13"), true, &package).is_err());
        assert!(allowed(&named("reqwest", "0.14"), false, &package).is_err());
        assert!(allowed(&named("metrics", "0.24"), false, &package).is_err());
    }

    #[test]
    fn what_is_named_is_found_in_signatures_and_implementations_and_not_in_blanket_ones() {
        let signature =
            json!({"function": {"sig": {"inputs": [["a", {"resolved_path": {"id": 10, "path": "A"}}]]}}});
        let made = |of: u64, blanket: Value| {
            json!({"impl": {"trait": {"id": of, "path": "T"}, "items": [],
            "is_synthetic": false, "blanket_impl": blanket}})
        };
        let paths = |name: &str| json!({"crate_id": 5, "path": ["other", name], "kind": "struct"});
        let doc = json!({
            "root": 0,
            "index": {
                "0": {"id": 0, "crate_id": 0, "inner": {"module": {"items": [1, 2]}}},
                "1": {"id": 1, "crate_id": 0, "inner": signature},
                "2": {"id": 2, "crate_id": 0, "inner": {"struct": {"kind": "unit", "impls": [3]}}},
                "3": {"id": 3, "crate_id": 0, "inner": made(11, json!({"generic": "T"}))},
                "4": {"id": 4, "crate_id": 0, "inner": made(12, Value::Null)},
            },
            "paths": {"10": paths("A"), "11": paths("Blanket"), "12": paths("C"), "13": paths("Unused")},
            "external_crates": {"5": {"name": "other"}},
        });
        let versions = BTreeMap::from([("other".to_owned(), vec![("other".to_owned(), "2".to_owned())])]);
        let found: Vec<String> = foreign(&doc, &versions).into_iter().map(|found| found.path).collect();
        assert_eq!(found, ["other::A", "other::C"]);
    }

    #[test]
    fn a_difference_names_what_came_and_what_went() {
        assert_eq!(difference("a\nb\n", "b\nc\n"), ["no longer named: a", "named now: c"]);
        assert!(difference("a\n", "a\n").is_empty());
    }

    #[test]
    fn compatible_versions_are_the_major_or_below_one_the_minor() {
        assert_eq!((compatible("1.12.2"), compatible("0.13.5")), ("1".into(), "0.13".into()));
    }
}
