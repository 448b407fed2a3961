//! The framers: the same events however the bytes are cut, whatever the bytes are, in bounded memory.

use proptest::prelude::*;
use stream_layer::{LineFramer, SseFramer, TooLong};

#[derive(Clone, Debug, PartialEq)]
struct Event {
    name: String,
    data: Option<Vec<u8>>,
    terminated: bool,
}

fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, max: usize) -> Result<Vec<Event>, TooLong> {
    let mut framer = SseFramer::new(max);
    let mut all = Vec::new();
    let mut failed = None;
    for piece in pieces {
        let mut fed = framer.feed(piece);
        while let Some(event) = fed.next_event() {
            match event {
                Ok(event) => all.push(own(event)),
                Err(err) => failed = Some(err),
            }
        }
    }
    let last = framer.finish().map(own);
    match failed {
        Some(err) => {
            assert!(last.is_none(), "nothing comes after a failure");
            Err(err)
        }
        None => {
            all.extend(last);
            assert!(framer.finish().is_none(), "the last event is given once");
            Ok(all)
        }
    }
}

fn own(event: stream_layer::SseEvent<'_>) -> Event {
    Event {
        name: String::from_utf8_lossy(event.name()).into_owned(),
        data: event.data().map(<[u8]>::to_vec),
        terminated: event.is_terminated(),
    }
}

fn texts(stream: &str) -> Vec<String> {
    let events = events([stream.as_bytes()], 1 << 20).unwrap();
    events.into_iter().filter_map(|event| event.data).map(|data| String::from_utf8(data).unwrap()).collect()
}

#[test]
fn all_three_line_ends_and_their_mixtures_end_lines_and_events() {
    for stream in [
        "data: a\n\ndata: b\n\n",
        "data: a\r\rdata: b\r\r",
        "data: a\r\n\r\ndata: b\r\n\r\n",
        "data: a\n\r\ndata: b\r\r\n",
        "data: a\r\n\rdata: b\r\n\n",
    ] {
        assert_eq!(texts(stream), ["a", "b"], "{stream:?}");
    }
}

#[test]
fn fields_are_read_as_the_standard_says() {
    assert_eq!(texts("data:x\n\ndata: x\n\ndata:  x\n\ndata\n\ndata:\n\n"), ["x", "x", " x", "", ""]);
    assert_eq!(texts("data: one\n: comment\ndata\ndata: two\nid: 7\nretry: 1\nother: z\n\n"), ["one\n\ntwo"]);
    assert_eq!(texts("\u{feff}data: x\n\n\u{feff}data: y\n\n"), ["x"], "a mark is one only at the start");
    assert_eq!(texts("\n\n\r\ndata: x\n\n\n\n"), ["x"]);
    assert_eq!(texts("data: {\"a\":\"b: c\"}\n\n"), ["{\"a\":\"b: c\"}"]);
}

#[test]
fn names_and_keepalives_are_told_apart() {
    let found =
        events([&b"event: a\nevent: b\ndata: x\n\n: ping\n\nevent: ping\n\ndata: y\n\n"[..]], 99).unwrap();
    let found: Vec<_> = found.iter().map(|event| (&*event.name, event.data.as_deref())).collect();
    assert_eq!(found, [("b", Some(&b"x"[..])), ("", None), ("ping", None), ("", Some(b"y"))]);
}

#[test]
fn an_event_without_its_end_is_flushed_and_says_so() {
    for stream in ["data: [DONE]", "data: [DONE]\n", "data: [DONE]\r"] {
        let found = events([stream.as_bytes()], 99).unwrap();
        assert_eq!((found.len(), found[0].terminated), (1, false));
        assert_eq!(found[0].data.as_deref(), Some(&b"[DONE]"[..]));
    }
}

#[test]
fn the_cap_counts_one_event_and_not_the_stream() {
    let stream = "data: 123456\n\n".repeat(100);
    assert_eq!(events([stream.as_bytes()], 12).unwrap().len(), 100);
    let err = events([stream.as_bytes()], 11).unwrap_err();
    assert_eq!(err.limit(), 11);
    // Many short lines, and comments, count as one long one does.
    assert!(events([&b"data: 1\n: 23\ndata: 4\n"[..]], 17).is_err());
}

#[test]
fn a_server_that_never_ends_an_event_costs_no_more_than_the_cap() {
    let mut framer = SseFramer::new(1000);
    let piece = [b'x'; 300];
    let mut failures = 0;
    for _ in 0..10_000 {
        failures += usize::from(framer.feed(&piece).next_event().is_some_and(|event| event.is_err()));
    }
    assert_eq!(failures, 1);
    assert!(framer.finish().is_none());
}

fn lines<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, max: usize) -> Result<Vec<Vec<u8>>, TooLong> {
    let mut framer = LineFramer::new(max);
    let mut all = Vec::new();
    for piece in pieces {
        let mut fed = framer.feed(piece);
        while let Some(line) = fed.next_line() {
            all.push(line?.to_vec());
        }
    }
    all.extend(framer.finish().map(<[u8]>::to_vec));
    assert!(framer.finish().is_none(), "the last line is given once");
    Ok(all)
}

#[test]
fn lines_lose_their_ends_and_blank_ones_vanish() {
    let found = lines([&b"\xEF\xBB\xBF{\"a\":1}\r\n\n \r\n{\"b\":\r2}\n{}"[..]], 99).unwrap();
    assert_eq!(found, [&b"{\"a\":1}"[..], b"{\"b\":\r2}", b"{}"]);
}

/// What the standard says, without any thought for speed or memory.
fn slow_and_obvious(stream: &[u8]) -> Vec<Event> {
    let stream = stream.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(stream);
    let mut lines = vec![Vec::new()];
    let mut bytes = stream.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\r' | b'\n' => {
                if byte == b'\r' && bytes.peek() == Some(&b'\n') {
                    bytes.next();
                }
                lines.push(Vec::new());
            }
            byte => lines.last_mut().unwrap().push(byte),
        }
    }
    let last = lines.pop().unwrap();
    let ended = lines.len();
    if !last.is_empty() {
        lines.push(last);
    }
    let mut all = Vec::new();
    let mut open: Option<Event> = None;
    for (at, line) in lines.iter().enumerate() {
        if line.is_empty() {
            all.extend(open.take().map(|event| Event { terminated: at < ended, ..event }));
            continue;
        }
        let event = open.get_or_insert(Event { name: String::new(), data: None, terminated: false });
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => match &mut event.data {
                None => event.data = Some(value.to_vec()),
                Some(data) => data.extend([&b"\n"[..], value].concat()),
            },
            b"event" => event.name = String::from_utf8_lossy(value).into_owned(),
            _ => {}
        }
    }
    all.extend(open);
    all
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => proptest::sample::select(vec![
            "data: ", "data:", "data", "event: ", "event", ": ping", "id: 1", "retry: 2", "\u{feff}", "日本", "{\"a\":1}",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        4 => proptest::sample::select(vec!["\n", "\r", "\r\n", "\n\n", "\r\r", "\r\n\r\n", "\n\r\n"])
            .prop_map(|text| text.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..6),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn cut<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([0, bytes.len()]).collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect()
}

proptest! {
    #[test]
    fn however_it_is_cut_the_events_are_those_of_the_standard(
        stream in stream(),
        cuts in proptest::collection::vec(any::<usize>(), 0..20),
    ) {
        let expected = slow_and_obvious(&stream);
        prop_assert_eq!(events(cut(&stream, &cuts), 1 << 20).unwrap(), expected.clone());
        prop_assert_eq!(events(stream.chunks(1), 1 << 20).unwrap(), expected);
    }

    #[test]
    fn however_it_is_cut_the_cap_refuses_the_same(
        stream in stream(),
        cuts in proptest::collection::vec(any::<usize>(), 0..20),
        max in 0_usize..40,
    ) {
        prop_assert_eq!(events(cut(&stream, &cuts), max), events([&stream[..]], max));
        prop_assert_eq!(lines(cut(&stream, &cuts), max), lines([&stream[..]], max));
    }

    #[test]
    fn however_they_are_cut_lines_are_the_same(
        stream in stream(),
        cuts in proptest::collection::vec(any::<usize>(), 0..20),
    ) {
        let unmarked = stream.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&stream);
        let expected = unmarked.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let expected: Vec<_> = expected.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
        prop_assert_eq!(lines(cut(&stream, &cuts), 1 << 20).unwrap(), expected);
    }
}

/// Knows one text by its beginning.
fn know(data: &[u8]) -> Option<(usize, Vec<u8>)> {
    let known = [&b"ping"[..], b"{\"a\":1}"].into_iter().find(|known| data.starts_with(known))?;
    Some((known.len(), known.to_vec()))
}

fn cuts<'a>(body: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
    cuts.extend([0, body.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|ends| &body[ends[0]..ends[1]]).collect()
}

proptest! {
    #[test]
    fn lines_that_are_known_are_the_lines_that_are_there(
        text in "(ping|pong|\\{\"a\":1\\}|x|\u{feff}| |\n|\n|\r\n|\r){0,24}",
        at in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        max in 4usize..12,
    ) {
        let plain = |pieces: Vec<&[u8]>, knows: bool| {
            let mut framer = LineFramer::new(max);
            let (mut all, mut failed) = (Vec::new(), false);
            for piece in pieces {
                let mut lines = framer.feed(piece);
                loop {
                    if let Some(line) = if knows { lines.next_known(know) } else { None } {
                        all.push(line);
                        continue;
                    }
                    match lines.next_line() {
                        Some(Ok(line)) => all.push(line.to_vec()),
                        Some(Err(_)) => failed = true,
                        None => break,
                    }
                }
            }
            all.extend(framer.finish().map(<[u8]>::to_vec));
            (all, failed)
        };
        let whole = plain(vec![text.as_bytes()], false);
        prop_assert_eq!(plain(vec![text.as_bytes()], true), whole.clone());
        prop_assert_eq!(plain(cuts(text.as_bytes(), &at), true), whole);
    }

    #[test]
    fn events_that_are_known_are_the_events_that_are_there(
        text in "(data:|data: |event: a|ping|\\{\"a\":1\\}|x|:| |\n|\n\n|\r\n\r\n|\r\n|\r){0,24}",
        at in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        max in 8usize..24,
    ) {
        let plain = |pieces: Vec<&[u8]>, knows: bool| {
            let mut framer = SseFramer::new(max);
            let (mut all, mut failed) = (Vec::new(), false);
            for piece in pieces {
                let mut events = framer.feed(piece);
                loop {
                    let know = |name: &[u8], data: &[u8]| {
                        let (length, known) = know(data)?;
                        Some((length, (name.to_vec(), Some(known))))
                    };
                    if let Some(event) = if knows { events.next_known(know) } else { None } {
                        all.push(event);
                        continue;
                    }
                    match events.next_event() {
                        Some(Ok(event)) => all.push((event.name().to_vec(), event.data().map(<[u8]>::to_vec))),
                        Some(Err(_)) => failed = true,
                        None => break,
                    }
                }
            }
            (all, failed)
        };
        let whole = plain(vec![text.as_bytes()], false);
        prop_assert_eq!(plain(vec![text.as_bytes()], true), whole.clone());
        prop_assert_eq!(plain(cuts(text.as_bytes(), &at), true), whole);
    }
}
