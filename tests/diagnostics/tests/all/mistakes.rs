//! The cases in `cases/`, compiled against the crates that this test was linked with. See the crate's docs for how they are
//! written.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use serde_json::Value;

macro_rules! cases {
    ($($name:ident)+) => {
        const ALL: &[&str] = &[$(stringify!($name)),+];

        $(#[test]
        fn $name() {
            check(stringify!($name));
        })+
    };
}

cases! { axum_router body builder classifier clone error order request response routes spawned }

#[test]
fn every_case_is_run() {
    let there: BTreeSet<_> = fs::read_dir(cases())
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(there, ALL.iter().map(|&name| name.to_owned()).collect());
}

fn check(name: &str) {
    let path = cases().join(name).with_extension("rs");
    let text = fs::read_to_string(&path).unwrap();
    let errors = compile(&path, &[]);
    let mut wanted = BTreeSet::new();
    for (line, code) in (1..).zip(text.lines()) {
        for said in code.split("//~ ").skip(1).map(str::trim) {
            wanted.insert(line);
            let is_said = errors.iter().any(|error| error.line == line && error.text.contains(said));
            assert!(is_said, "{name}.rs:{line} should say\n  {said}\nbut there is\n{}", all(&errors));
        }
    }
    let others: Vec<_> = errors.iter().filter(|error| !wanted.contains(&error.line)).collect();
    assert!(others.is_empty(), "{name}.rs says more than it should:\n{others:#?}");

    let errors = compile(&path, &["--cfg", "mended"]);
    assert!(errors.is_empty(), "{name}.rs is not mended:\n{}", all(&errors));
}

#[derive(Debug)]
struct Error {
    line: u64,
    /// The message, the labels, the notes.
    text: String,
}

fn compile(path: &Path, more: &[&str]) -> Vec<Error> {
    let mut crates = env::current_exe().unwrap();
    crates.pop();
    let output = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args([
            "--edition=2024",
            "--crate-type=lib",
            "--emit=metadata",
            "--cap-lints=allow",
            "--error-format=json",
        ])
        .arg("--check-cfg=cfg(mended)")
        .arg(format!("--out-dir={}", env!("CARGO_TARGET_TMPDIR")))
        .arg(format!("-Ldependency={}", crates.display()))
        .arg(format!("--extern=diagnostics={}", newest(&crates).display()))
        .args(more)
        .arg(path)
        .output()
        .expect("rustc runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let errors: Vec<_> = said
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("rustc says {line}")))
        // The last one only counts the others.
        .filter(|said| said["level"] == "error" && said["spans"] != Value::Array(Vec::new()))
        .map(|said| Error { line: line_of(&said), text: text_of(&said) })
        .collect();
    assert_eq!(output.status.success(), errors.is_empty(), "{said}");
    errors
}

/// The library of this package: several can lie there, built with other features, and the one that belongs to this test was
/// built last or is as good. All other crates are found by way of it.
fn newest(crates: &Path) -> PathBuf {
    let built = |path: &PathBuf| {
        fs::metadata(path).and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    fs::read_dir(crates)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name().is_some_and(|name| {
                let name = name.to_string_lossy();
                name.starts_with("libdiagnostics-") && name.ends_with(".rlib")
            })
        })
        .max_by_key(built)
        .expect("cargo has built the library of this package")
}

/// The line in the case itself, also where a macro's definition is what is wrong.
fn line_of(said: &Value) -> u64 {
    let spans = said["spans"].as_array().unwrap();
    let primary = spans.iter().find(|span| span["is_primary"] == true).unwrap();
    primary["line_start"].as_u64().unwrap()
}

fn text_of(said: &Value) -> String {
    let labels =
        said["spans"].as_array().unwrap().iter().map(|span| span["label"].as_str().unwrap_or_default());
    let notes = said["children"].as_array().unwrap().iter().map(|child| child["message"].as_str().unwrap());
    let message = said["message"].as_str().unwrap();
    std::iter::once(message).chain(labels).chain(notes).map(|text| format!("{text}\n")).collect()
}

fn all(errors: &[Error]) -> String {
    errors.iter().map(|error| format!("line {}: {}", error.line, error.text)).collect()
}

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}
