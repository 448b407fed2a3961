//! llm-layer's package has its own copies of the samples, so that it can be tested alone. They must be the same.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{fs, path::Path};

#[test]
fn the_samples_in_llm_layers_package_are_those_of_the_cases() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (cases, copies) = (here.join("cases/wire"), here.join("../../crates/llm-layer/tests/wire"));
    let mut count = 0;
    for copy in fs::read_dir(copies).unwrap() {
        let copy = copy.unwrap();
        let name = copy.file_name();
        let (mine, theirs) = (fs::read(copy.path()).unwrap(), fs::read(cases.join(&name)).unwrap());
        if name == "index.tsv" {
            // It has the rows of the samples that are there.
            let (mine, theirs) = (String::from_utf8(mine).unwrap(), String::from_utf8(theirs).unwrap());
            let theirs: Vec<&str> = theirs.lines().collect();
            for row in mine.lines() {
                assert!(theirs.contains(&row), "{row}");
            }
        } else {
            assert!(mine == theirs, "{} differs", name.display());
            count += 1;
        }
    }
    assert!(count > 50, "{count} samples");
}
