//! What it costs to look at an answer.
//!
//! `cargo run --release -q -p benches --bin validate` prints a table; `--json` prints one array instead. The least of many runs
//! counts. The README says what is measured and what bounds it.

mod texts;

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use validate_layer::{Answer, Check, ValidateLayer, Validator, checks::Repetition};

/// How long the runs of one row take.
const TIME: Duration = Duration::from_millis(400);

struct Row {
    name: &'static str,
    bytes: usize,
    nanos: f64,
    allocs: u64,
    code: &'static str,
}

fn main() {
    let rows = rows();
    if std::env::args().any(|arg| arg == "--json") {
        let rows: Vec<Value> = rows
            .iter()
            .map(|row| json!({"name": row.name, "bytes": row.bytes, "ns": row.nanos, "allocs": row.allocs, "code": row.code}))
            .collect();
        println!("{}", Value::from(rows));
        return;
    }
    println!("{:<44} {:>10} {:>12} {:>9} {:>7}  found", "", "bytes", "µs", "MB/s", "allocs");
    for Row { name, bytes, nanos, allocs, code } in rows {
        let (micros, speed) = (nanos / 1e3, megabytes_per_second(bytes, nanos));
        println!("{name:<44} {bytes:>10} {micros:>12.1} {speed:>9.0} {allocs:>7}  {code}");
    }
}

#[allow(clippy::cast_precision_loss, reason = "megabytes")]
fn megabytes_per_second(bytes: usize, nanos: f64) -> f64 {
    bytes as f64 * 1e3 / nanos
}

fn rows() -> Vec<Row> {
    let (answer, object) = (texts::answer(), texts::object());
    let full = layer(|builder| {
        builder
            .json_object()
            .schema(&texts::schema())
            .require("/name")
            .require("/items/0/id")
            .require("/total")
    });
    let json_only = layer(|builder| builder.json_object().allow_repetition());
    let defaults = layer(|builder| builder);
    let mut rows = vec![
        parse("an answer: serde_json alone, to a Value", &answer),
        schema_alone("the same, jsonschema, three pointers by hand", &answer),
        judge("JSON", &json_only, &answer),
        judge("JSON, schema, required, repetition", &full, &answer),
        parse("small fields: serde_json alone, to a Value", &object),
        schema_alone("the same, jsonschema, three pointers by hand", &object),
        judge("JSON", &json_only, &object),
        judge("JSON, schema, required, repetition", &full, &object),
        judge("defaults", &defaults, &texts::prose(4096)),
    ];
    let megabyte = 1 << 20;
    for (name, text) in [
        ("repetition, English", texts::prose(megabyte)),
        ("repetition, Chinese", texts::chinese(megabyte)),
        ("repetition, a log", texts::log(megabyte)),
        ("repetition, rows of JSON", texts::rows(megabyte)),
    ] {
        rows.push(scan(name, &text));
    }
    rows.push(judge("defaults, English", &defaults, &texts::prose(megabyte)));
    let ten = 10_000_000;
    let lax = layer(|builder| builder.json().require("/a").allow_repetition());
    for (name, text) in [
        ("repetition, one letter", "a".repeat(ten)),
        ("repetition, borders that fail late", texts::late(ten)),
        ("repetition, a Fibonacci word", texts::fibonacci(ten)),
        ("repetition, whitespace just short enough", texts::gaps(ten)),
    ] {
        rows.push(scan(name, &text));
    }
    rows.push(judge("JSON, nested five million deep", &lax, &texts::nested(ten)));
    rows.push(judge("JSON, a million keys", &lax, &texts::keys(1_000_000)));
    rows
}

fn layer(
    build: impl FnOnce(validate_layer::ValidateBuilder) -> validate_layer::ValidateBuilder,
) -> ValidateLayer {
    let layer = build(ValidateLayer::builder()).build();
    layer.unwrap_or_else(|problem| panic!("{problem}"))
}

fn judge(name: &'static str, layer: &ValidateLayer, text: &str) -> Row {
    let (validator, text): (&Validator, Arc<str>) = (layer.validator(), text.into());
    measure(name, text.len(), || {
        let (_, report) = validator.judge(&Answer::new(Arc::clone(&text)));
        report.leading().map_or("", |finding| finding.code())
    })
}

fn scan(name: &'static str, text: &str) -> Row {
    let answer = Answer::new(text);
    measure(name, text.len(), || Repetition.on_answer(&answer).leading().map_or("", |finding| finding.code()))
}

fn parse(name: &'static str, text: &str) -> Row {
    measure(name, text.len(), || {
        black_box(serde_json::from_str::<Value>(text).is_ok());
        ""
    })
}

fn schema_alone(name: &'static str, text: &str) -> Row {
    let schema = jsonschema::validator_for(&texts::schema()).unwrap_or_else(|problem| panic!("{problem}"));
    measure(name, text.len(), || {
        let value = serde_json::from_str::<Value>(text).unwrap_or_default();
        let there = ["/name", "/items/0/id", "/total"].iter().all(|at| value.pointer(at).is_some());
        black_box(schema.is_valid(&value) && there);
        ""
    })
}

/// The least time of one call.
fn measure(name: &'static str, bytes: usize, mut call: impl FnMut() -> &'static str) -> Row {
    let code = call();
    let allocs = allocation_counter::measure(|| {
        black_box(call());
    })
    .count_total;
    let (mut least, begin) = (Duration::MAX, now());
    let mut runs = 0_u32;
    while runs < 3 || begin.elapsed() < TIME {
        let start = now();
        black_box(call());
        least = least.min(start.elapsed());
        runs += 1;
    }
    Row { name, bytes, nanos: least.as_secs_f64() * 1e9, allocs, code }
}

#[allow(clippy::disallowed_methods, reason = "a bench measures the time that passes")]
fn now() -> Instant {
    Instant::now()
}
