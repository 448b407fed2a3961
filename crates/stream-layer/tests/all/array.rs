//! The framer of JSON arrays: the same elements however the bytes are cut, whatever the bytes are, in bounded memory.

use failsoft_core::{Class, Fault, Hint, SoftKind};
use proptest::prelude::*;
use stream_layer::{ArrayError, ArrayFramer};

fn read<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    max: usize,
) -> (Vec<String>, Option<ArrayError>, bool) {
    let mut framer = ArrayFramer::new(max);
    let (mut all, mut failed) = (Vec::new(), None);
    for piece in pieces {
        let mut fed = framer.feed(piece);
        while let Some(next) = fed.next_element() {
            assert!(failed.is_none(), "nothing comes after a failure");
            match next {
                Ok(element) => all.push(String::from_utf8_lossy(element).into_owned()),
                Err(err) => failed = Some(err),
            }
        }
    }
    (all, failed, framer.is_over())
}

fn elements(text: &str) -> Vec<String> {
    let (all, failed, over) = read([text.as_bytes()], 1 << 20);
    assert_eq!((failed, over), (None, true), "{text}");
    all
}

#[test]
fn braces_and_quotes_inside_strings_end_nothing() {
    assert_eq!(
        elements(r#"[{"a":"}],\"{"},{"b":"\\"} , {"c":[{}]}]"#),
        [r#"{"a":"}],\"{"}"#, r#"{"b":"\\"}"#, r#"{"c":[{}]}"#]
    );
}

#[test]
fn what_google_puts_between_elements_is_none() {
    assert_eq!(elements("\r\n[{\"a\":1}\n,\r\n{\"a\":2}\n]\n"), ["{\"a\":1}", "{\"a\":2}"]);
    assert_eq!(elements("[]"), [""; 0]);
    assert_eq!(elements("\u{c}[\u{c}1\u{c}]"), ["1"], "every blank is one");
    assert_eq!(elements("[1,\"a]\",null,[2,3],-4.5]"), ["1", "\"a]\"", "null", "[2,3]", "-4.5"]);
}

#[test]
fn what_comes_after_the_end_is_no_element() {
    for pieces in [&[&b"[1]  \n[2] x"[..]][..], &[b"[1]", b"  \n", b"[2] x"]] {
        let (all, failed, over) = read(pieces.iter().copied(), 99);
        assert_eq!((all, failed, over), (vec!["1".to_owned()], None, true));
    }
}

#[test]
fn what_is_no_array_is_an_error() {
    for text in ["{\"error\":{}}", "<html>", "data: {}", "[<", "[1}", "[1 }"] {
        let (_, failed, over) = read([text.as_bytes()], 99);
        assert_eq!((failed, over), (Some(ArrayError::NoArray), false), "{text}");
    }
    let fault = Fault::from(ArrayError::NoArray);
    assert_eq!((fault.class(), fault.verdict().hint()), (Class::Transient, Hint::Same));
}

#[test]
fn an_array_that_is_cut_is_not_over_and_gives_no_half_element() {
    let (all, failed, over) = read([&br#"[{"a":1},{"a":"#[..]], 99);
    assert_eq!((all, failed, over), (vec![r#"{"a":1}"#.to_owned()], None, false));
}

#[test]
fn a_server_that_never_ends_an_element_costs_no_more_than_the_cap() {
    let mut framer = ArrayFramer::new(1000);
    let piece = [b'['; 300];
    let mut failures = 0;
    for _ in 0..10_000 {
        if let Some(Err(ArrayError::TooLong(err))) = framer.feed(&piece).next_element() {
            assert_eq!(err.limit(), 1000);
            assert_eq!(Fault::from(err).class(), Class::Soft(SoftKind::Malformed));
            failures += 1;
        }
    }
    assert_eq!(failures, 1);
    assert!(format!("{framer:?}").contains("buffered: 0"), "{framer:?}");
}

fn json(depth: u32) -> BoxedStrategy<String> {
    let leaf = prop_oneof!["(null|true|-?[0-9]{1,3})", ".{0,6}".prop_map(|text| quoted(&text))];
    if depth == 0 {
        return leaf.boxed();
    }
    let inner = || proptest::collection::vec(json(depth - 1), 0..4);
    prop_oneof![
        leaf,
        inner().prop_map(|all| format!("[{}]", all.join(" , "))),
        inner().prop_map(|all| {
            format!(
                "{{{}}}",
                all.iter().map(|one| format!("\"k]\\\"\": {one}")).collect::<Vec<_>>().join(",")
            )
        }),
    ]
    .boxed()
}

fn quoted(text: &str) -> String {
    let escaped: String =
        text.chars().map(|c| if c == '"' || c == '\\' { format!("\\{c}") } else { c.to_string() }).collect();
    format!("\"{escaped}\"")
}

fn cut<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([0, bytes.len()]).collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect()
}

proptest! {
    #[test]
    fn however_it_is_cut_the_elements_are_those_that_were_written(
        written in proptest::collection::vec(json(3), 0..5),
        cuts in proptest::collection::vec(any::<usize>(), 0..12),
    ) {
        let text = format!(" [{}\n]", written.join("\n,\r\n"));
        prop_assert_eq!(elements(&text), written.clone());
        let (all, failed, over) = read(cut(text.as_bytes(), &cuts), 1 << 20);
        prop_assert_eq!((&all, failed, over), (&written, None, true));
        prop_assert_eq!(read(text.as_bytes().chunks(1), 1 << 20).0, written);
    }

    #[test]
    fn any_bytes_say_the_same_however_they_are_cut(
        bytes in proptest::collection::vec(prop_oneof![any::<u8>(), proptest::sample::select(&b"[]{},\"\\ 1a"[..])], 0..60),
        cuts in proptest::collection::vec(any::<usize>(), 0..12),
        max in prop_oneof![Just(1_usize << 20), 0_usize..10],
    ) {
        let mut bytes = bytes;
        bytes.insert(0, b'[');
        let whole = read([&bytes[..]], max);
        prop_assert_eq!(&read(cut(&bytes, &cuts), max), &whole);
        prop_assert_eq!(&read(bytes.chunks(1), max), &whole);
    }
}

proptest! {
    #[test]
    fn elements_that_are_known_are_the_elements_that_are_there(
        text in "\\[?(\\{\\}|\\[1\\]|\\{\"a\":\"\\}\"\\}|\\[|\\]|,|,| |\r\n|7|\"x\"|x){0,16}\\]?",
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        max in 2usize..12,
    ) {
        // Each is all of an object or of an array.
        let know = |bytes: &[u8]| {
            let known = [&b"{}"[..], b"[1]", b"{\"a\":\"}\"}"].into_iter().find(|known| bytes.starts_with(known))?;
            Some((known.len(), String::from_utf8_lossy(known).into_owned()))
        };
        let read = |pieces: Vec<&[u8]>, knows: bool| {
            let mut framer = ArrayFramer::new(max);
            let (mut all, mut failed) = (Vec::new(), None);
            for piece in pieces {
                let mut fed = framer.feed(piece);
                loop {
                    if let Some(element) = if knows { fed.next_known(know) } else { None } {
                        all.push(element);
                        continue;
                    }
                    match fed.next_element() {
                        Some(Ok(element)) => all.push(String::from_utf8_lossy(element).into_owned()),
                        Some(Err(err)) => failed = Some(err),
                        None => break,
                    }
                }
            }
            (all, failed, framer.is_over())
        };
        let body = text.as_bytes();
        let whole = read(vec![body], false);
        prop_assert_eq!(read(vec![body], true), whole.clone());
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|ends| &body[ends[0]..ends[1]]).collect();
        prop_assert_eq!(read(pieces, true), whole);
    }
}
