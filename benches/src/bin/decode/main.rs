//! What it costs to know what a streamed answer says, beside the published decoders, and who reads odd input right.
//!
//! `cargo run --release -q -p benches --bin decode` prints two tables; `--json` prints one object instead. The README says
//! what is measured and what bounds it.

mod decoders;
mod odd;
mod samples;
mod speed;

fn main() {
    let rows = speed::rows();
    let odd = odd::rows();
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
