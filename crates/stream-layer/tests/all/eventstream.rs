//! The framer of AWS's binary event stream: the same messages however the bytes are cut, whatever the bytes are, in
//! bounded memory.

use failsoft_core::{Class, Fault, Hint, SoftKind};
use proptest::prelude::*;
use stream_layer::{
    EventStreamError as Error, EventStreamFramer, EventStreamMessage, EventStreamValue as Value, MAX_EVENT,
};

/// The checksum bit by bit, as the standard defines it.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

/// A message with these lengths in its prelude and right checksums.
fn with_lengths(length: u32, headers_length: u32, content: &[u8]) -> Vec<u8> {
    let mut message = [length.to_be_bytes(), headers_length.to_be_bytes()].concat();
    message.extend(crc(&message).to_be_bytes());
    message.extend(content);
    message.extend(crc(&message).to_be_bytes());
    message
}

fn message(headers: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = (12 + headers.len() + payload.len() + 4) as u32;
    with_lengths(length, headers.len() as u32, &[headers, payload].concat())
}

fn header(name: &str, kind: u8, value: &[u8]) -> Vec<u8> {
    [&[name.len() as u8][..], name.as_bytes(), &[kind], value].concat()
}

fn text(name: &str, value: &str) -> Vec<u8> {
    header(name, 7, &[&(value.len() as u16).to_be_bytes()[..], value.as_bytes()].concat())
}

#[derive(Clone, Debug, PartialEq)]
struct Message {
    headers: Vec<(String, String)>,
    payload: Vec<u8>,
}

fn own(message: EventStreamMessage<'_>) -> Message {
    let headers = message.headers().map(|(name, value)| (name.to_owned(), format!("{value:?}"))).collect();
    Message { headers, payload: message.payload().to_vec() }
}

/// What came, how it failed, and whether it ended in the middle of a message.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, max: usize) -> (Vec<Message>, Option<Error>, bool) {
    let mut framer = EventStreamFramer::new(max);
    let (mut all, mut failed) = (Vec::new(), None);
    for piece in pieces {
        let mut fed = framer.feed(piece);
        while let Some(next) = fed.next_message() {
            assert!(failed.is_none(), "nothing comes after a failure");
            match next {
                Ok(message) => all.push(own(message)),
                Err(err) => failed = Some(err),
            }
        }
    }
    (all, failed, framer.is_cut())
}

#[test]
fn every_type_of_header_is_read() {
    let headers = [
        header("yes", 0, b""),
        header("no", 1, b""),
        header("byte", 2, &[0xff]),
        header("short", 3, &[0, 7]),
        header("int", 4, &[0, 0, 1, 0]),
        header("long", 5, &[0, 0, 0, 0, 0, 0, 0, 9]),
        header("bytes", 6, b"\0\x02ab"),
        text(":event-type", "contentBlockDelta"),
        header("time", 8, &1_700_000_000_000_i64.to_be_bytes()),
        header("id", 9, &[3; 16]),
        text(":event-type", "a second one of the name"),
    ]
    .concat();
    let bytes = message(&headers, b"{}");
    let mut framer = EventStreamFramer::default();
    let mut fed = framer.feed(&bytes);
    let message = fed.next_message().unwrap().unwrap();
    let values: Vec<_> = message.headers().map(|(_, value)| value).collect();
    assert_eq!(
        values[..10],
        [
            Value::Bool(true),
            Value::Bool(false),
            Value::Byte(-1),
            Value::Short(7),
            Value::Int(256),
            Value::Long(9),
            Value::Bytes(b"ab"),
            Value::String("contentBlockDelta"),
            Value::Timestamp(1_700_000_000_000),
            Value::Uuid([3; 16]),
        ]
    );
    assert_eq!(message.text(":event-type"), Some("contentBlockDelta"));
    assert_eq!((message.text("byte"), message.header("none")), (None, None));
    assert!(!format!("{message:?}").contains("{}"), "a payload does not belong in logs");
}

#[test]
fn a_message_without_headers_or_payload_is_one() {
    let bytes = [message(b"", b""), message(b"", b"x")].concat();
    let (messages, failed, cut) = read([&bytes[..]], 99);
    assert_eq!((messages.len(), failed, cut), (2, None, false));
    assert_eq!(messages[1].payload, b"x");
}

#[test]
fn a_wrong_checksum_is_an_error_and_nothing_comes_after_it() {
    let good = message(&text(":event-type", "a"), b"payload");
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let mut prelude = good.clone();
    prelude[8] ^= 1;
    let mut payload = good.clone();
    payload[30] ^= 1;
    for (bad, err) in [(damaged, Error::Checksum), (payload, Error::Checksum), (prelude, Error::Prelude)] {
        let bytes = [good.clone(), bad, good.clone()].concat();
        let (messages, failed, cut) = read([&bytes[..]], 99);
        assert_eq!((messages.len(), failed, cut), (1, Some(err), false));
    }
}

#[test]
fn lengths_that_contradict_each_other_are_an_error_though_their_checksum_is_right() {
    for bad in [
        with_lengths(0, 0, b""),
        with_lengths(15, 0, b""),
        with_lengths(20, 5, b"xxxx"),
        with_lengths(u32::MAX, u32::MAX, b""),
        with_lengths(16 << 20, 200 << 10, b""),
    ] {
        let (messages, failed, _) = read([&bad[..]], usize::MAX);
        assert_eq!((messages, failed), (vec![], Some(Error::Lengths)));
    }
}

#[test]
fn headers_that_cannot_be_read_are_an_error() {
    for headers in [
        header("", 0, b""),
        header("a", 10, b""),
        header("a", 4, b"\0\0"),
        header("a", 7, b"\0\x05ab"),
        header("a", 7, b"\0\x01\xff"),
        vec![9, b'a'],
        [header("a", 0, b""), vec![0]].concat(),
    ] {
        let (messages, failed, _) = read([&message(&headers, b"")[..]], 99);
        assert_eq!((messages, failed), (vec![], Some(Error::Headers)), "{headers:?}");
    }
}

#[test]
fn a_page_in_place_of_a_stream_is_an_error_at_its_twelfth_byte() {
    let (_, failed, _) = read(b"<html><body>".chunks(1), 99);
    assert_eq!(failed, Some(Error::Prelude));
    let fault = Fault::from(Error::Prelude);
    assert_eq!((fault.class(), fault.verdict().hint()), (Class::Transient, Hint::Same));
}

#[test]
fn the_cap_counts_one_message_and_not_the_stream() {
    let one = message(b"", b"123456");
    let bytes = one.repeat(100);
    assert_eq!(read([&bytes[..]], one.len()).0.len(), 100);
    for piece in [1, 13, 9999] {
        let (messages, failed, _) = read(bytes.chunks(piece), one.len() - 1);
        let Some(Error::TooLong(err)) = failed else { panic!("{failed:?}") };
        assert_eq!((messages.len(), err.limit()), (0, one.len() - 1));
    }
    let fault = Fault::from(failed_too_long());
    assert_eq!(fault.class(), Class::Soft(SoftKind::Malformed));
}

fn failed_too_long() -> Error {
    read([&message(b"", b"123")[..]], 3).1.unwrap()
}

#[test]
fn a_length_alone_costs_no_memory() {
    // Announces eight MiB and never sends them.
    let mut framer = EventStreamFramer::default();
    let announced = with_lengths(MAX_EVENT as u32, 0, b"");
    assert!(framer.feed(&announced[..12]).next_message().is_none());
    assert!(framer.is_cut());
    assert!(format!("{framer:?}").contains("buffered: 12"), "{framer:?}");
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let headers = prop_oneof![
        Just(Vec::new()),
        "[a-z:-]{1,12}".prop_map(|name| text(&name, "value")),
        Just(header("n", 4, &[0; 4])),
    ];
    let whole = (headers, proptest::collection::vec(any::<u8>(), 0..40))
        .prop_map(|(headers, payload)| message(&headers, &payload));
    let piece = prop_oneof![8 => whole, 1 => proptest::collection::vec(any::<u8>(), 0..20)];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn cut<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([0, bytes.len()]).collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect()
}

/// The same without any thought for how it is cut.
fn slow_and_obvious(mut bytes: &[u8], max: usize) -> (Vec<Message>, Option<Error>) {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().unwrap());
    let mut all = Vec::new();
    while bytes.len() >= 12 {
        let (length, headers) = (number(bytes) as usize, number(&bytes[4..]) as usize);
        if crc(&bytes[..8]) != number(&bytes[8..]) {
            return (all, Some(Error::Prelude));
        }
        if length > max {
            // The error knows the cap: take it from one.
            return (all, read([&message(b"", &vec![0; max])[..]], max).1);
        }
        if bytes.len() < length {
            break;
        }
        if crc(&bytes[..length - 4]) != number(&bytes[length - 4..]) {
            return (all, Some(Error::Checksum));
        }
        let mut name = &bytes[12..12 + headers];
        let mut found = Vec::new();
        while !name.is_empty() {
            let (value, length) = match name[1 + usize::from(name[0])] {
                4 => (format!("{:?}", Value::Int(0)), 5),
                _ => (format!("{:?}", Value::String("value")), 8),
            };
            let text = String::from_utf8(name[1..1 + usize::from(name[0])].to_vec()).unwrap();
            name = &name[1 + text.len() + length..];
            found.push((text, value));
        }
        all.push(Message { headers: found, payload: bytes[12 + headers..length - 4].to_vec() });
        bytes = &bytes[length..];
    }
    (all, None)
}

proptest! {
    #[test]
    fn however_it_is_cut_the_messages_are_the_same(
        stream in stream(),
        cuts in proptest::collection::vec(any::<usize>(), 0..20),
        max in prop_oneof![Just(1_usize << 20), 16_usize..60],
    ) {
        let whole = read([&stream[..]], max);
        prop_assert_eq!((whole.0.clone(), whole.1), slow_and_obvious(&stream, max));
        prop_assert_eq!(&read(cut(&stream, &cuts), max), &whole);
        prop_assert_eq!(&read(stream.chunks(1), max), &whole);
    }

    #[test]
    fn a_changed_byte_is_never_taken_for_a_message(
        at in any::<prop::sample::Index>(),
        change in 1_u8..,
        payload in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = message(&text(":event-type", "a"), &payload);
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        let (messages, failed, _) = read([&bytes[..]], 1 << 20);
        prop_assert!(messages.is_empty() && failed.is_some());
    }
}
