use proptest::prelude::*;

use super::{scan::stop, *};

const TEXT: Adds = Adds::Text { choice: 0 };

fn plain<'a>(data: &'a str, raw: &str, unread: &[&str]) -> Plain<'a> {
    let part = |part: &str| &data[data.find(part).unwrap()..][..part.len()];
    let mut fields = [None; UNREAD];
    for (field, value) in fields.iter_mut().zip(unread) {
        *field = Some(part(value));
    }
    Plain { name: "", data, adds: TEXT, raw: part(raw), unread: fields, usage: None }
}

fn found(moulds: &mut Moulds, data: &str) -> Option<String> {
    let (length, known) = moulds.known(b"", data.as_bytes(), true)?;
    (length == data.len()).then(|| known.text.to_owned())
}

#[test]
fn the_same_bytes_around_another_string_fit_and_nothing_else_does() {
    let mut moulds = Moulds::default();
    moulds.learn(&plain(r#"{"c":"a","d":1}"#, r#""a""#, &[]));
    for (data, text) in [
        (r#"{"c":"","d":1}"#, Some("")),
        (r#"{"c":"Grüezi","d":1}"#, Some("Grüezi")),
        (r#"{"c":"a \"b\"\n\u00e9\ud83d\ude00","d":1}"#, Some("a \"b\"\né😀")),
        (r#"{"c":"a","d":2}"#, None),
        (r#"{"c":"a","d":1} "#, None),
        (r#"{"c":"a","d":1"#, None),
        (r#"{"c":"a\","d":1}"#, None),
        (r#"{"c":"\x","d":1}"#, None),
        (r#"{"c":"\u12","d":1}"#, None),
        ("{\"c\":\"a\u{1}\",\"d\":1}", None),
        (r#"{"c":"a","e":"","d":1}"#, None),
        (r#"{"c":null,"d":1}"#, None),
    ] {
        assert_eq!(found(&mut moulds, data).as_deref(), text, "{data}");
    }
    assert!(moulds.known(b"error", br#"{"c":"a","d":1}"#, true).is_none());
    assert!(moulds.known(b"", b"{\"c\":\"\xFF\",\"d\":1}", true).is_none());
}

#[test]
fn half_of_a_surrogate_pair_is_what_it_is_to_everybody_else_here() {
    let mut moulds = Moulds::default();
    moulds.learn(&plain(r#"{"c":"a"}"#, r#""a""#, &[]));
    for raw in [r#""x\ud83d""#, r#""\ude00y""#, r#""\ud83d\ud83d\ude00""#] {
        assert_eq!(found(&mut moulds, &format!(r#"{{"c":{raw}}}"#)).as_deref(), lens::string(raw).as_deref());
    }
}

#[test]
fn unread_fields_are_gaps_once_they_were_seen_to_differ() {
    let mut moulds = Moulds::default();
    let event = |id: &str, text: &str, pad: &str| format!(r#"{{"id":{id},"c":"{text}","p":"{pad}"}}"#);
    let learn = |moulds: &mut Moulds, id: &str, text: &str, pad: &str| {
        let (data, raw, pad) = (event(id, text, pad), format!("\"{text}\""), format!("\"{pad}\""));
        moulds.learn(&plain(&data, &raw, &[id, &pad]));
    };
    learn(&mut moulds, "1", "a", "xy");
    assert!(found(&mut moulds, &event("1", "b", "xy")).is_some());
    assert!(found(&mut moulds, &event("1", "b", "z")).is_none());
    learn(&mut moulds, "1", "b", "z");
    assert!(found(&mut moulds, &event("1", "b", "zzz")).is_some());
    assert!(found(&mut moulds, &event("2", "b", "zzz")).is_none());
    learn(&mut moulds, "2", "w", "q");
    for (id, pad, fits) in [
        ("17", "", true),
        ("0", "é", true),
        ("01", "", false),
        ("-1", "", false),
        ("1.5", "", false),
        ("1", "\\n", false),
    ] {
        assert_eq!(found(&mut moulds, &event(id, "d", pad)).is_some(), fits, "{id} {pad}");
    }
}

fn counting<'a>(data: &'a str, fields: &[&str]) -> Plain<'a> {
    let raw = &data[data.find(r#"{"n""#).unwrap()..data.len() - 1];
    let mut found = [None; COUNTS];
    for (field, value) in found.iter_mut().zip(fields) {
        *field = Some(&raw[raw.find(value).unwrap()..][..value.len()]);
    }
    Plain { usage: Some(Used { raw, fields: found }), ..plain(data, r#""a""#, &[]) }
}

fn counted(moulds: &mut Moulds, data: &str) -> Option<Counted> {
    let (length, known) = moulds.known(b"", data.as_bytes(), true)?;
    (length == data.len() && known.has_counts).then(|| moulds.counted())
}

#[test]
fn the_numbers_of_a_usage_object_are_gaps_and_those_that_are_counts_are_read() {
    let event =
        |n: &str, m: &str, x: &str| format!(r#"{{"c":"a","u":{{"n":{n},"d":{{"m":{m}}},"x":[{x},"7"]}}}}"#);
    let mut moulds = Moulds::default();
    moulds.learn(&counting(&event("31", "12", "0.25"), &["31", "12"]));
    let of = |n, m| Some([Some(n), Some(m), None, None, None, None, None]);
    for (data, counts) in [
        (event("0", "1234567890123456789", "-1e-7"), of(0, 1_234_567_890_123_456_789)),
        (event("9999999999999999999", "0", "1E+400"), of(9_999_999_999_999_999_999, 0)),
        (event("10000000000000000000", "0", "1"), None),
        (event("-1", "0", "1"), None),
        (event("1.0", "0", "1"), None),
        (event("1e2", "0", "1"), None),
        (event("01", "0", "1"), None),
        (event("", "0", "1"), None),
        (event("\"1\"", "0", "1"), None),
        (event("null", "0", "1"), None),
        (event("1", "0", "01"), None),
        (event("1", "0", "1."), None),
        (event("1", "0", ".5"), None),
        (event("1", "0", "1e"), None),
        (event("1", "0", "-"), None),
        (event("1", "0", "+1"), None),
        (event("1", "0", "\"1\""), None),
        (event("1", "0", "1,2"), None),
    ] {
        assert_eq!(counted(&mut moulds, &data), counts, "{data}");
    }
}

#[test]
fn a_count_that_is_written_oddly_is_no_gap_and_is_never_taken_for_one() {
    let event = |n: &str| format!(r#"{{"c":"a","u":{{"n":{n}}}}}"#);
    for odd in ["1.0", "1e2", "18446744073709551616"] {
        let mut moulds = Moulds::default();
        moulds.learn(&counting(&event(odd), &[odd]));
        assert_eq!(counted(&mut moulds, &event(odd)), None, "{odd}");
    }
    let mut moulds = Moulds::default();
    moulds.learn(&counting(&event("-7"), &["-7"]));
    assert_eq!(counted(&mut moulds, &event("-7")), Some([None; COUNTS]));
    assert_eq!(counted(&mut moulds, &event("7")), None);
}

#[test]
fn too_many_numbers_make_no_mould() {
    let event = format!(r#"{{"c":"a","u":{{"n":[{}]}}}}"#, vec!["1"; MAX_GAPS].join(","));
    let mut moulds = Moulds::default();
    moulds.learn(&counting(&event, &[]));
    assert_eq!(found(&mut moulds, &event), None);
}

#[test]
fn choices_that_take_turns_have_a_mould_each() {
    let mut moulds = Moulds::default();
    let event = |choice: u64, text: &str| format!(r#"{{"i":{choice},"c":"{text}"}}"#);
    for choice in 0..3 {
        let data = event(choice, "a");
        moulds.learn(&Plain { adds: Adds::Text { choice }, ..plain(&data, r#""a""#, &[]) });
    }
    for choice in [2, 0, 1, 1, 0, 2] {
        let data = event(choice, "b");
        assert_eq!(
            moulds.known(b"", data.as_bytes(), true).map(|(_, known)| known.adds),
            Some(Adds::Text { choice })
        );
    }
}

#[test]
fn what_is_kept_is_bounded() {
    let mut moulds = Moulds::default();
    let long = format!(r#"{{"p":"{}","c":"a"}}"#, "x".repeat(MAX_FIXED));
    moulds.learn(&plain(&long, r#""a""#, &[]));
    assert_eq!(found(&mut moulds, &long), None);
    let text = format!("\"{}\"", "y".repeat(1 << 20));
    let data = format!(r#"{{"c":{text}}}"#);
    moulds.learn(&plain(&data, &text, &[]));
    assert!(found(&mut moulds, r#"{"c":"z"}"#).is_some());
    assert!(moulds.all.iter().all(|mould| mould.fixed.capacity() < MAX_FIXED));
}

proptest! {
    #[test]
    fn a_string_stops_where_the_first_byte_that_is_not_itself_stands(
        bytes in proptest::collection::vec(prop_oneof![4 => any::<u8>(), 4 => b' '..=b'~', 1 => Just(b'"'), 1 => 0x1Eu8..0x23], 0..40),
    ) {
        let slow = bytes.iter().position(|byte| *byte < 0x20 || *byte == b'"' || *byte == b'\\');
        prop_assert_eq!(stop(&bytes), slow);
    }

    #[test]
    fn a_string_is_read_as_the_general_reader_does(inner in "(\\\\[nrtbf/\"\\\\xu]|\\\\u[0-9a-fA-F]{0,5}|\\\\ud[89a-f][0-9a-f]{2}|[ -~é😀\u{1}]){0,12}") {
        let raw = format!("\"{inner}\"");
        let general = lens::fields(&format!(r#"{{"c":{raw}}}"#), ["c"]).is_some().then(|| lens::string(&raw)).flatten();
        let mut moulds = Moulds::default();
        moulds.learn(&plain(r#"{"c":"a"}"#, r#""a""#, &[]));
        let data = format!(r#"{{"c":{raw}}}"#);
        let known = found(&mut moulds, &data);
        prop_assert_eq!(known.as_deref(), general.as_deref());
    }
}
