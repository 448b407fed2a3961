//! What `cargo metadata` says of this workspace.

use std::process::Command;

use serde_json::Value;

use crate::Outcome;

/// All packages in the lock, with all features.
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Value>,
    pub(crate) members: Vec<String>,
    nodes: Vec<Value>,
}

impl Metadata {
    pub(crate) fn read() -> Outcome<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--locked", "--all-features", "--format-version", "1"])
            .output()?;
        if !output.status.success() {
            return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Self::parse(&output.stdout)
    }

    pub(crate) fn parse(json: &[u8]) -> Outcome<Self> {
        let value: Value = serde_json::from_slice(json)?;
        let packages = value["packages"].as_array().ok_or("cargo metadata without packages")?.clone();
        let members = value["workspace_members"].as_array().ok_or("cargo metadata without members")?;
        let members = members.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let nodes = value["resolve"]["nodes"].as_array().cloned().unwrap_or_default();
        Ok(Self { packages, members, nodes })
    }

    /// The names of those that depend on it directly.
    pub(crate) fn dependents(&self, id: &str) -> impl Iterator<Item = String> {
        let depends =
            move |node: &&Value| node["deps"].as_array().into_iter().flatten().any(|on| on["pkg"] == id);
        self.nodes.iter().filter(depends).map(|node| {
            let package = self.packages.iter().find(|package| package["id"] == node["id"]);
            package.map_or("?", |package| text(&package["name"])).to_owned()
        })
    }

    /// The members that are made to be published.
    pub(crate) fn published(&self) -> impl Iterator<Item = &Value> {
        self.packages.iter().filter(|package| {
            self.members.iter().any(|member| package["id"] == member.as_str())
                && package["publish"].as_array().is_none_or(|registries| !registries.is_empty())
        })
    }

    /// `package/feature` for each feature of the published members that carries no version.
    pub(crate) fn plain_features(&self) -> Vec<String> {
        let mut found = Vec::new();
        for package in self.published() {
            let features = package["features"].as_object();
            for feature in features.into_iter().flat_map(|features| features.keys()) {
                if versioned(feature).is_none() {
                    found.push(format!("{}/{feature}", text(&package["name"])));
                }
            }
        }
        found
    }
}

/// The crate and the version digits of a feature such as `reqwest-013`.
pub(crate) fn versioned(feature: &str) -> Option<(&str, &str)> {
    let (name, version) = feature.rsplit_once('-')?;
    (version.len() > 1 && version.starts_with('0') && version.bytes().all(|byte| byte.is_ascii_digit()))
        .then_some((name, version))
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_carries_a_version_when_it_ends_in_its_digits() {
        assert_eq!(versioned("reqwest-013"), Some(("reqwest", "013")));
        assert_eq!(versioned("http-body-util-01"), Some(("http-body-util", "01")));
        assert_eq!(versioned("serde"), None);
        assert_eq!(versioned("last-good"), None);
    }
}
