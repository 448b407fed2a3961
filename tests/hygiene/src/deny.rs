//! The licences, bans and sources of `deny.toml`, for machines without cargo-deny, which takes minutes to build.
//!
//! It reads of that file what stands in it, and says so where it finds less than it needs; `.ci/deny` prefers the real one where it is
//! installed.

use serde_json::Value;

use crate::{
    Outcome,
    licence::satisfied,
    metadata::{Metadata, text},
};

pub(crate) fn check(metadata: &Metadata, rules: &str) -> Outcome {
    let rules = Rules::read(rules)?;
    // Where Cargo looks by default. A dependency that names another registry says so; one that is patched comes from elsewhere than the others.
    let registry =
        metadata.packages.iter().find_map(|package| package["source"].as_str()).unwrap_or_default();
    let wrong: Vec<String> = metadata
        .packages
        .iter()
        .flat_map(|package| {
            rules.violations(package, registry).into_iter().chain(rules.bans(package, metadata))
        })
        .chain(metadata.published().flat_map(without_licence_files))
        .collect();
    if wrong.is_empty() {
        println!("{} packages: licences, bans and sources as deny.toml says", metadata.packages.len());
        return Ok(());
    }
    Err(wrong.join("\n").into())
}

struct Rules {
    licences: Vec<String>,
    banned: Vec<Ban>,
}

/// A crate that nobody may depend on, except these.
struct Ban {
    name: String,
    wrappers: Vec<String>,
}

impl Rules {
    fn read(toml: &str) -> Outcome<Self> {
        let section = |name: &str| -> Outcome<String> {
            let head = format!("[{name}]");
            let lines = toml.lines().map(str::trim);
            let inside =
                lines.skip_while(|line| *line != head).skip(1).take_while(|line| !line.starts_with('['));
            let text = inside.filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
            if text.is_empty() { Err(format!("deny.toml has no [{name}]").into()) } else { Ok(text) }
        };
        let sources = section("sources")?;
        for rule in ["unknown-registry = \"deny\"", "unknown-git = \"deny\""] {
            if !sources.contains(rule) {
                return Err(format!(
                    "deny.toml no longer says {rule}, and `hygiene deny` holds nothing else"
                )
                .into());
            }
        }
        let licences = quoted(list(&section("licenses")?, "allow")?);
        let banned = tables(&section("bans")?, "deny")?;
        let banned = banned.iter().map(|line| Ban::read(line)).collect::<Outcome<Vec<_>>>()?;
        if licences.is_empty() || banned.is_empty() {
            return Err("deny.toml allows no licence or bans no crate: `hygiene deny` has misread it".into());
        }
        Ok(Self { licences, banned })
    }

    fn violations(&self, package: &Value, registry: &str) -> Vec<String> {
        let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
        let mut wrong = Vec::new();
        match package["source"].as_str() {
            None => {}
            Some(source) if source == registry && source.starts_with("registry+") => {}
            Some(source) => wrong.push(format!("{name} comes from {source}")),
        }
        let private = package["source"].is_null() && package["publish"].as_array().is_some_and(Vec::is_empty);
        match satisfied(text(&package["license"]), &self.licences) {
            Some(true) => {}
            _ if private => {}
            Some(false) => wrong.push(format!(
                "{name} is licensed as {}, which deny.toml does not allow",
                package["license"]
            )),
            None => wrong.push(format!("{name} says {} of its licence", package["license"])),
        }
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            // A path may stand for a version inside the workspace, not in what others publish.
            if package["source"].is_null() && dependency["req"] == "*" && dependency["path"].is_null() {
                wrong.push(format!("{name} takes any version of {}", dependency["name"]));
            }
            if let Some(other) = dependency["registry"].as_str() {
                wrong.push(format!("{name} takes {} from {other}", dependency["name"]));
            }
        }
        wrong
    }
}

impl Rules {
    /// Who depends on this package, where it is banned, and is no exception.
    fn bans(&self, package: &Value, metadata: &Metadata) -> Vec<String> {
        let Some(ban) = self.banned.iter().find(|ban| package["name"] == ban.name.as_str()) else {
            return Vec::new();
        };
        let dependents = metadata.dependents(text(&package["id"]));
        dependents
            .filter(|dependent| !ban.wrappers.contains(dependent))
            .map(|dependent| format!("{dependent} brings {}, which deny.toml bans", ban.name))
            .collect()
    }
}

impl Ban {
    /// `{ name = "x", wrappers = ["y"], reason = "…" }`, on one line.
    fn read(line: &str) -> Outcome<Self> {
        let name = line.split_once("name = ").and_then(|(_, name)| quoted(name).into_iter().next());
        let name = name.ok_or_else(|| format!("a ban of deny.toml without a name: {line}"))?;
        let wrappers = if line.contains("wrappers") { quoted(list(line, "wrappers")?) } else { Vec::new() };
        Ok(Self { name, wrappers })
    }
}

/// Each package that is published must bring the texts of its licences: a packed one has no folder above it.
fn without_licence_files(package: &Value) -> Vec<String> {
    let manifest = std::path::Path::new(text(&package["manifest_path"]));
    ["LICENSE-MIT", "LICENSE-APACHE"]
        .into_iter()
        .filter(|file| manifest.parent().is_none_or(|folder| !folder.join(file).is_file()))
        .map(|file| format!("{} brings no {file}", package["name"]))
        .collect()
}

/// What stands between the brackets of `key = [`.
fn list<'a>(section: &'a str, key: &str) -> Outcome<&'a str> {
    let head = format!("{key} = [");
    let start =
        section.find(&head).ok_or_else(|| format!("deny.toml has no `{key}` where it is looked for"))?;
    let inside = &section[start + head.len()..];
    let end = inside.find(']').ok_or_else(|| format!("`{key}` of deny.toml has no end"))?;
    Ok(&inside[..end])
}

/// The lines of `key = [`, where each holds one `{ … }`.
fn tables(section: &str, key: &str) -> Outcome<Vec<String>> {
    let head = format!("{key} = [");
    let mut lines = section.lines().skip_while(|line| *line != head).skip(1);
    let inside: Vec<String> = lines.by_ref().take_while(|line| *line != "]").map(str::to_owned).collect();
    if inside.iter().all(|line| line.starts_with('{') && line.trim_end_matches(',').ends_with('}')) {
        return Ok(inside);
    }
    Err(format!("`{key}` of deny.toml does not have one `{{ … }}` on each line").into())
}

fn quoted(text: &str) -> Vec<String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RULES: &str = r#"
[licenses]
allow = ["MIT", "Apache-2.0"]
# allow = ["GPL-3.0"]

[bans]
deny = [
  { name = "openssl-sys", reason = "the \"TLS\" choice" },
  { name = "async-trait", wrappers = ["tonic"], reason = "boxed" },
]

[sources]
unknown-registry = "deny"
unknown-git = "deny"
"#;

    const REGISTRY: &str = "registry+https://example.com/index";

    fn package(name: &str, licence: &str, source: &str) -> Value {
        json!({"name": name, "version": "1.0.0", "license": licence, "source": source, "publish": null,
            "dependencies": [{"name": "x", "req": "^1", "registry": null}]})
    }

    #[test]
    fn what_the_rules_forbid_is_named() {
        let rules = Rules::read(RULES).unwrap();
        let wrong = |package: &Value| rules.violations(package, REGISTRY).len();
        assert_eq!(wrong(&package("good", "MIT OR GPL-3.0", REGISTRY)), 0);
        assert_eq!(wrong(&package("bad", "GPL-3.0", REGISTRY)), 1);
        assert_eq!(wrong(&package("bad", "", REGISTRY)), 1);
        assert_eq!(wrong(&package("bad", "MIT", "registry+https://other.example.com/index")), 1);
        let git = "git+https://example.com/bad#1";
        assert_eq!(wrong(&package("bad", "MIT", git)), 1);
        assert_eq!(
            rules.violations(&package("bad", "MIT", git), git).len(),
            1,
            "also where all come from there"
        );
        let mut elsewhere = package("bad", "MIT", REGISTRY);
        elsewhere["dependencies"][0]["registry"] = json!("https://other.example.com/index");
        assert_eq!(wrong(&elsewhere), 1);
    }

    #[test]
    fn who_brings_a_banned_crate_is_named_and_an_exception_is_not() {
        let rules = Rules::read(RULES).unwrap();
        let node = |id: &str, on: &str| json!({"id": id, "deps": [{"pkg": on}]});
        let metadata = json!({
            "packages": [{"id": "1", "name": "async-trait"}, {"id": "2", "name": "tonic"}, {"id": "3", "name": "peer"}],
            "workspace_members": [],
            "resolve": {"nodes": [node("2", "1"), node("3", "1")]},
        });
        let metadata = Metadata::parse(metadata.to_string().as_bytes()).unwrap();
        assert_eq!(
            rules.bans(&metadata.packages[0], &metadata),
            ["peer brings async-trait, which deny.toml bans"]
        );
        assert!(rules.bans(&metadata.packages[1], &metadata).is_empty());
    }

    #[test]
    fn a_private_package_needs_no_licence_and_a_member_no_wildcard() {
        let rules = Rules::read(RULES).unwrap();
        let mut member = json!({"name": "ours", "version": "0.1.0", "license": null, "source": null, "publish": [],
            "dependencies": [{"name": "x", "req": "*", "path": "crates/x"}]});
        assert!(rules.violations(&member, REGISTRY).is_empty());
        member["dependencies"][0]["path"] = Value::Null;
        assert_eq!(rules.violations(&member, REGISTRY).len(), 1);
    }

    #[test]
    fn rules_that_it_cannot_hold_are_an_error() {
        assert!(Rules::read("").is_err());
        assert!(Rules::read(&RULES.replace("unknown-git = \"deny\"", "unknown-git = \"warn\"")).is_err());
        assert!(Rules::read(&RULES.replace("\"MIT\", \"Apache-2.0\"", "")).is_err());
    }
}
