//! What CI asks of the packages themselves, for machines that have nothing but Rust: the scripts in `.ci` call it.
//!
//! - `hygiene public-types ALL PLAIN LIST [--write]`: which types of other crates our public API names, from rustdoc's JSON with all features
//!   (in the folder ALL) and without the features that carry a version (PLAIN). Fails where LIST says otherwise.
//! - `hygiene plain-features`: the features of the published crates that carry no version, as cargo's `--features` takes them.
//! - `hygiene deny`: the licences, bans and sources of `deny.toml`, over `cargo metadata`.
//! - `hygiene minima`: the lowest version that the published crates state for each dependency of theirs.

mod deny;
mod licence;
mod metadata;
mod minima;
mod public_types;

use std::{error::Error, path::Path, process::ExitCode};

use self::metadata::Metadata;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("{err}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Outcome {
    match *args {
        ["public-types", all, plain, list, ref rest @ ..] => public_types::check(
            &Metadata::read()?,
            Path::new(all),
            Path::new(plain),
            Path::new(list),
            rest == ["--write"],
        ),
        ["plain-features"] => {
            println!("{}", Metadata::read()?.plain_features().join(","));
            Ok(())
        }
        ["deny"] => deny::check(&Metadata::read()?, &std::fs::read_to_string("deny.toml")?),
        ["minima"] => {
            for (name, version) in minima::of(&Metadata::read()?)? {
                println!("{name} {version}");
            }
            Ok(())
        }
        _ => {
            Err("usage: hygiene public-types ALL PLAIN LIST [--write] | plain-features | deny | minima"
                .into())
        }
    }
}
