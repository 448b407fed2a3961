//! The READMEs name what there is: every option of the builders, and every feature.

use std::{fs, path::PathBuf};

/// A crate, and the files in which its builders stand.
const BUILDERS: [(&str, &[&str]); 7] = [
    ("breaker-layer", &["builder.rs"]),
    ("budget-layer", &["builder.rs"]),
    ("fallback-layer", &["layer.rs", "route.rs"]),
    ("llm-layer", &["layer.rs"]),
    ("retry-layer", &["builder.rs", "hedge/builder.rs"]),
    ("stream-layer", &["layer.rs"]),
    ("validate-layer", &["builder.rs"]),
];

#[test]
fn every_option_of_a_builder_is_in_its_crates_readme() {
    let mut missing = Vec::new();
    for (name, files) in BUILDERS {
        let readme = read(&format!("{name}/README.md"));
        let mut found = 0;
        for file in files {
            for option in options(&read(&format!("{name}/src/{file}"))) {
                found += 1;
                if !names(&readme, &option) {
                    missing.push(format!("{name}: `{option}`"));
                }
            }
        }
        assert!(found > 5, "{name}: only {found} options were found in {files:?}: has the builder moved?");
    }
    assert!(missing.is_empty(), "not in the README of their crate: {missing:#?}");
}

#[test]
fn every_feature_is_in_its_crates_readme() {
    let mut missing = Vec::new();
    for entry in fs::read_dir(crates()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let (manifest, readme) = (read(&format!("{name}/Cargo.toml")), read(&format!("{name}/README.md")));
        let section = manifest.split("\n[features]\n").nth(1).unwrap_or_default();
        let section = section.split("\n[").next().unwrap_or_default();
        let features = section.lines().filter_map(|line| line.split_once(" = ")).map(|(feature, _)| feature);
        for feature in features.filter(|feature| !feature.starts_with('#') && *feature != "default") {
            if !names(&readme, feature) {
                missing.push(format!("{name}: `{feature}`"));
            }
        }
    }
    assert!(missing.is_empty(), "not in the README of their crate: {missing:#?}");
}

/// The methods that take the builder and give it back, those of the breaker's macro among them.
fn options(source: &str) -> Vec<String> {
    let macro_starts = source.find("    settings! {").unwrap_or(source.len());
    let (methods, inside) = source.split_at(macro_starts);
    let (inside, rest) = inside.split_at(inside.find("\n    }\n").unwrap_or(inside.len()));
    let methods = methods.lines().chain(rest.lines()).filter_map(of_method);
    let found = methods.chain(inside.lines().filter_map(of_macro));
    found.filter(|name| !["build", "into_boxed", "into_inner"].contains(name)).map(str::to_owned).collect()
}

fn of_method(line: &str) -> Option<&str> {
    let line = line.strip_prefix("    pub ")?;
    let (name, rest) = line.strip_prefix("const ").unwrap_or(line).strip_prefix("fn ")?.split_once('(')?;
    let is_option = rest.starts_with("self") || rest.starts_with("mut self");
    is_option.then(|| name.split_once('<').map_or(name, |(name, _)| name))
}

fn of_macro(line: &str) -> Option<&str> {
    let (name, rest) = line.strip_prefix("        ")?.split_once('(')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    (is_name && rest.ends_with(");") && (rest.contains(": ") || rest == ");")).then_some(name)
}

/// Whether a text has a name in it, as a word.
fn names(text: &str, name: &str) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'-';
    text.match_indices(name).any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|at| text.as_bytes().get(at));
        let after = text.as_bytes().get(at + name.len());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

fn read(path: &str) -> String {
    fs::read_to_string(crates().join(path)).unwrap_or_else(|err| panic!("{path}: {err}"))
}

fn crates() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../crates")
}
