//! Odd input, which servers send and networks make.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;

use crate::decoders::{ALL, Who};

/// What each decoder makes of one input, whole and byte by byte.
pub(crate) struct Row {
    name: &'static str,
    results: Vec<(Who, &'static str)>,
}

/// A name, the stream, and the data of its events by the standard; the last two are beyond it, see the README.
const INPUTS: [(&str, &[u8], &[&str]); 16] = [
    ("LF", b"data: a\n\ndata: b\n\n", &["a", "b"]),
    ("CRLF", b"data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]),
    ("CR", b"data: a\r\rdata: b\r\r:\r", &["a", "b"]),
    ("CR at the very end", b"data: a\r\rdata: b\r\r", &["a", "b"]),
    ("mixed line ends", b"data: a\n\r\ndata: b\r\n\ndata: c\r\n\r", &["a", "b", "c"]),
    ("a byte order mark", b"\xEF\xBB\xBFdata: a\n\n", &["a"]),
    ("comments and keepalives", b": ping\n\n:\n\ndata: a\n: in between\ndata: b\n\n", &["a\nb"]),
    ("data over several lines", b"data: a\ndata:\ndata: b\n\n", &["a\n\nb"]),
    ("no space, and two", b"data:a\n\ndata:  b\n\n", &["a", " b"]),
    ("a field without a colon", b"data\ndata\n\ndata: a\nfoo\n\n", &["\n", "a"]),
    ("unknown fields", b"foo: 1\ndata: a\nDATA: b\n\n", &["a"]),
    ("characters of three and four bytes", "data: 中😀\n\n".as_bytes(), &["中😀"]),
    ("bytes that are no UTF-8", b"data: a\xFFb\n\ndata: c\n\n", &["a\u{FFFD}b", "c"]),
    ("id and retry", b"id: 1\nretry: 10\ndata: a\n\nid: \0\nretry: x\ndata: b\n\n", &["a", "b"]),
    ("an unterminated last event", b"data: a\n\ndata: [DONE]", &["a", "[DONE]"]),
    ("the same with one line end", b"data: a\n\ndata: [DONE]\n", &["a", "[DONE]"]),
];

/// An event of 64 MiB without end: whether the decoder gives up before it holds all of it.
const ENDLESS: &str = "an event without end";

pub(crate) fn rows() -> Vec<Row> {
    // A decoder may panic, and the table says so.
    std::panic::set_hook(Box::new(|_| ()));
    let mut rows: Vec<Row> = INPUTS
        .into_iter()
        .map(|(name, stream, right)| Row {
            name,
            results: ALL.into_iter().map(|who| (who, result(who, stream, right))).collect(),
        })
        .collect();
    rows.push(Row { name: ENDLESS, results: ALL.into_iter().map(|who| (who, endless(who))).collect() });
    drop(std::panic::take_hook());
    rows
}

fn result(who: Who, stream: &'static [u8], right: &[&str]) -> &'static str {
    let read = |pieces: Vec<Bytes>| {
        catch_unwind(AssertUnwindSafe(|| {
            let mut data = Vec::new();
            who.decode(&pieces, |text| data.push(text.to_owned()));
            data
        }))
    };
    let whole = read(vec![Bytes::from_static(stream)]);
    let bytes = read(stream.chunks(1).map(Bytes::from_static).collect());
    match (whole, bytes) {
        (Ok(whole), Ok(bytes)) if whole == right && bytes == right => "right",
        (Ok(whole), Ok(_)) if whole == right => "wrong, cut",
        (Ok(_), Ok(_)) => "wrong",
        _ => "panics",
    }
}

fn endless(who: Who) -> &'static str {
    let piece = Bytes::from(vec![b'x'; 1 << 16]);
    let pieces: Vec<Bytes> =
        std::iter::once(Bytes::from_static(b"data: ")).chain(std::iter::repeat_n(piece, 1 << 10)).collect();
    let held = allocation_counter::measure(|| who.decode(&pieces, |_| ()));
    if held.bytes_max < 32 << 20 { "right" } else { "holds it all" }
}

impl Row {
    pub(crate) fn json(&self) -> String {
        let results = self.results.iter().map(|(who, result)| format!(r#""{}": "{result}""#, who.name()));
        format!(r#"{{"input": "{}", {}}}"#, self.name, results.collect::<Vec<_>>().join(", "))
    }
}

pub(crate) fn print(rows: &[Row]) {
    let Some(first) = rows.first() else { return };
    print!("{:<36}", "odd input, whole and byte by byte");
    first.results.iter().for_each(|(who, _)| print!(" {:>24}", who.name()));
    println!();
    for Row { name, results } in rows {
        print!("{name:<36}");
        results.iter().for_each(|(_, result)| print!(" {result:>24}"));
        println!();
    }
}
