//! Prints what each layer costs a call.
//!
//! `--json` prints an array of objects instead. Any other argument is the beginning of the names to measure, and may be
//! repeated.

mod ours;
mod peers;

use benches::{Row, Subject, measure_all};
use failsoft_core::BoxError;

fn main() -> Result<(), BoxError> {
    let (options, names): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let mut subjects: Vec<Subject> = ours::subjects()?.into_iter().chain(peers::subjects()?).collect();
    subjects.retain(|subject| names.is_empty() || names.iter().any(|name| subject.name().starts_with(name)));
    let rows = measure_all(&subjects);
    if options.iter().any(|option| option == "--json") {
        let objects: Vec<_> = rows.iter().map(json).collect();
        println!("[{}]", objects.join(",\n"));
    } else {
        print_table(&rows);
    }
    Ok(())
}

fn print_table(rows: &[Row]) {
    let bare = rows.iter().find(|row| row.name == "bare").map_or(0.0, |row| row.ns1);
    let (name, over, two) = ("", "over bare", "2 threads");
    println!("{name:<40} {:>9} {over:>10} {two:>10} {:>7} {:>7}", "ns", "allocs", "yields");
    for Row { name, ns1, ns2, allocs, yields } in rows {
        let over = ns1 - bare;
        println!("{name:<40} {ns1:>9.1} {over:>10.1} {ns2:>10.1} {allocs:>7.2} {yields:>7.3}");
    }
}

fn json(Row { name, ns1, ns2, allocs, yields }: &Row) -> String {
    format!(
        r#"{{"name": "{name}", "ns1": {ns1:.2}, "ns2": {ns2:.2}, "allocs": {allocs:.3}, "yields": {yields:.4}}}"#
    )
}
