//! What it costs to know what a streamed answer says, beside the published decoders, and who reads odd input right.
//!
//! `cargo run --release -q -p benches --bin decode` prints two tables; `--json` prints one object instead; names choose the
//! streams that begin so. The README says what is measured and what bounds it.

mod decoders;
mod native;
mod odd;
mod samples;
mod speed;
mod text;

fn main() {
    let names: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let rows = speed::rows(|name| names.is_empty() || names.iter().any(|wanted| name.starts_with(wanted)));
    let odd = if names.is_empty() { odd::rows() } else { Vec::new() };
    if std::env::args().any(|arg| arg == "--json") {
        let speed: Vec<_> = rows.iter().map(speed::Row::json).collect();
        let odd: Vec<_> = odd.iter().map(odd::Row::json).collect();
        println!(r#"{{"speed": [{}], "odd": [{}]}}"#, speed.join(", "), odd.join(", "));
        return;
    }
    speed::print(&rows);
    println!();
    odd::print(&odd);
}
