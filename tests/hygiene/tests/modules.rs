//! No test is left out: a file in a package's `tests/all` that its `main.rs` does not name is not compiled, and nothing else says so.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
};

#[test]
fn every_file_of_tests_all_is_a_module_of_its_main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let packages = ["crates", "examples", "tests"].into_iter().flat_map(|folder| entries(&root.join(folder)));
    let (mut looked_at, mut missing) = (0, Vec::new());
    for folder in packages.map(|package| package.join("tests/all")).filter(|folder| folder.is_dir()) {
        let main = fs::read_to_string(folder.join("main.rs")).unwrap();
        for entry in entries(&folder) {
            let name = entry.file_stem().unwrap().to_str().unwrap();
            looked_at += 1;
            if name != "main" && !main.lines().any(|line| line == format!("mod {name};")) {
                missing.push(entry);
            }
        }
    }
    assert!(looked_at > 100, "only {looked_at} files were looked at: have the tests moved?");
    assert!(missing.is_empty(), "no module of the main.rs beside it: {missing:#?}");
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}
