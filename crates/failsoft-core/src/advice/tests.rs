use std::time::UNIX_EPOCH;

use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

/// Sun, 06 Nov 1994 08:49:30 GMT, seven seconds before the date that RFC 9110 takes for its examples.
fn then() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(784_111_770)
}

/// Tue, 14 Nov 2023 22:13:20 GMT.
fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

fn headers(lines: &[(&str, &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_bytes(value).unwrap());
    }
    headers
}

fn advice(lines: &[(&str, &str)]) -> Option<Duration> {
    let lines: Vec<_> = lines.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    retry_after(&headers(&lines), now())
}

const fn ms(ms: u64) -> Option<Duration> {
    Some(Duration::from_millis(ms))
}

#[test]
fn seconds_with_and_without_a_fraction_are_read() {
    for (text, wanted) in [("1", ms(1_000)), ("0.5", ms(500)), (" 2.25 ", ms(2_250)), ("1e1", ms(10_000))] {
        assert_eq!(parse_retry_after(text, now()), wanted, "{text}");
    }
}

#[test]
fn the_three_http_date_forms_are_read() {
    for text in
        ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
    {
        assert_eq!(parse_retry_after(text, then()), ms(7_000), "{text}");
    }
}

#[test]
fn a_past_or_absurd_date_is_no_advice() {
    for text in [
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "Wed, 21 Oct 99999 07:28:00 GMT",
        "Wed, 99 Oct 2015 07:28:00 GMT",
        "-999999-01-01T00:00:00Z",
    ] {
        assert_eq!(parse_retry_after(text, now()), None, "{text}");
        assert_eq!(parse_reset(text, now()), None, "{text}");
    }
}

#[test]
fn what_is_zero_negative_or_unreadable_is_no_advice() {
    for text in
        ["0", "0.0", "-1", "-0", "nan", "NaN", "inf", "-inf", "+5", "", " ", "garbage", "5 s", "1,5", "."]
    {
        assert_eq!(advice(&[("retry-after", text)]), None, "{text}");
        assert_eq!(advice(&[("retry-after-ms", text)]), None, "{text}");
        assert_eq!(advice(&[("x-ratelimit-reset", text)]), None, "{text}");
    }
}

#[test]
fn what_is_too_large_saturates() {
    for text in ["1e400", "99999999999999999999999999", &"9".repeat(400), "9999999999"] {
        assert_eq!(advice(&[("retry-after", text)]), Some(LONGEST), "{text}");
    }
    assert_eq!(advice(&[("x-ratelimit-reset", "1e400")]), Some(LONGEST));
    assert_eq!(advice(&[("x-ratelimit-reset", "99999999999999h")]), Some(LONGEST));
    assert!(tokio_like_sum(LONGEST).is_some());
}

/// What a caller does with advice: adds some jitter, and that to a clock.
fn tokio_like_sum(wait: Duration) -> Option<SystemTime> {
    now().checked_add(wait.checked_mul(4)?)
}

#[test]
fn milliseconds_come_before_seconds_and_seconds_before_resets() {
    let reset = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "6m0s")];
    assert_eq!(advice(&[("retry-after", "2"), ("retry-after-ms", "1500"), reset[0], reset[1]]), ms(1_500));
    assert_eq!(advice(&[("retry-after", "2"), reset[0], reset[1]]), ms(2_000));
    assert_eq!(advice(&[("retry-after", "soon"), ("retry-after-ms", "x"), reset[0], reset[1]]), ms(360_000));
}

#[test]
fn of_a_repeated_header_the_longest_counts() {
    assert_eq!(advice(&[("retry-after", "2"), ("retry-after", "9"), ("retry-after", "x")]), ms(9_000));
}

#[test]
fn the_longest_reset_of_the_exhausted_limits_counts() {
    let requests = |left| [("x-ratelimit-remaining-requests", left), ("x-ratelimit-reset-requests", "6m0s")];
    let tokens = |left| [("x-ratelimit-remaining-tokens", left), ("x-ratelimit-reset-tokens", "2m59.56s")];
    let both = |a, b| advice(&[requests(a), tokens(b)].concat());
    assert_eq!(both("0", "0"), ms(360_000));
    assert_eq!(both("3", "0"), ms(179_560));
    assert_eq!(both("3", "150"), None);
}

#[test]
fn every_form_of_a_reset_is_read() {
    for (text, wanted) in [
        ("12", ms(12_000)),
        ("0.25", ms(250)),
        ("6m0s", ms(360_000)),
        ("2m59.56s", ms(179_560)),
        ("120ms", ms(120)),
        ("1h2m3s", ms(3_723_000)),
        ("1d", ms(86_400_000)),
        ("80µs", Some(Duration::from_micros(80))),
        ("80us", Some(Duration::from_micros(80))),
        ("900ns", Some(Duration::from_nanos(900))),
        ("2023-11-14T22:13:50Z", ms(30_000)),
        ("2023-11-14T23:13:50.5+01:00", ms(30_500)),
        ("Tue, 14 Nov 2023 22:13:50 GMT", ms(30_000)),
        ("1700000030", ms(30_000)),
        ("1700000030.5", ms(30_500)),
        ("1700000030000", ms(30_000)),
        ("1699999999", None),
        ("1699999999999", None),
        ("2023-11-14T22:13:19Z", None),
        ("0s", None),
        ("-6m", None),
        ("6x", None),
        ("6", ms(6_000)),
        ("m", None),
        ("1.2.3s", None),
    ] {
        assert_eq!(parse_reset(text, now()), wanted, "{text}");
    }
}

#[test]
fn anthropic_limits_are_read() {
    let line = |limit: &'static str, left: &'static str, reset: &'static str| {
        vec![
            (format!("anthropic-ratelimit-{limit}-remaining"), left),
            (format!("anthropic-ratelimit-{limit}-reset"), reset),
        ]
    };
    let lines = [
        line("requests", "49", "2023-11-14T22:14:50Z"),
        line("tokens", "0", "2023-11-14T22:13:50Z"),
        line("input-tokens", "0", "2023-11-14T22:14:20Z"),
        line("output-tokens", "8000", "2023-11-14T23:13:20Z"),
    ]
    .concat();
    let lines: Vec<_> = lines.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    assert_eq!(advice(&lines), ms(60_000));
    assert_eq!(
        advice(&[
            ("anthropic-ratelimit-unified-5h-status", "allowed"),
            ("anthropic-ratelimit-unified-5h-reset", "1700018000"),
            ("anthropic-ratelimit-unified-7d-status", "rejected"),
            ("anthropic-ratelimit-unified-7d-reset", "1700000090"),
        ]),
        ms(90_000)
    );
}

#[test]
fn the_ietf_headers_are_read_in_all_their_forms() {
    assert_eq!(advice(&[("ratelimit-remaining", "0"), ("ratelimit-reset", "30")]), ms(30_000));
    assert_eq!(advice(&[("ratelimit", "limit=100, remaining=0, reset=30")]), ms(30_000));
    assert_eq!(advice(&[("ratelimit", "limit=100, remaining=7, reset=30")]), None);
    assert_eq!(advice(&[("ratelimit", r#""burst";r=0;t=5, "daily";r=100;t=3600"#)]), ms(5_000));
    assert_eq!(advice(&[("ratelimit", r#""a,r=0;t=9\"";r=0;t=6"#)]), ms(6_000));
    assert_eq!(advice(&[("ratelimit", r#""default";r=50;t=30"#)]), None);
}

#[test]
fn a_reset_alone_counts_only_as_the_only_information() {
    assert_eq!(advice(&[("x-ratelimit-reset", "17")]), ms(17_000));
    assert_eq!(advice(&[("x-ratelimit-reset", "1699999999")]), None);
    assert_eq!(
        advice(&[
            ("x-ratelimit-reset", "17"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "3"),
        ]),
        ms(3_000)
    );
    assert_eq!(
        advice(&[
            ("x-ratelimit-reset", "17"),
            ("x-ratelimit-remaining-tokens", "9"),
            ("x-ratelimit-reset-tokens", "3"),
        ]),
        None
    );
}

#[test]
fn placeholders_say_nothing() {
    // Azure sends -1 and 0 where it does not know.
    assert_eq!(advice(&[("x-ratelimit-remaining-tokens", "-1"), ("x-ratelimit-reset-tokens", "0")]), None);
    assert_eq!(advice(&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "-1")]), None);
}

#[test]
fn the_server_may_forbid_or_ask_for_a_retry() {
    let said = |values: &[&[u8]]| {
        let lines: Vec<_> = values.iter().map(|value| ("x-should-retry", *value)).collect();
        should_retry(&headers(&lines))
    };
    assert_eq!(said(&[b"true"]), Some(true));
    assert_eq!(said(&[b" False"]), Some(false));
    assert_eq!(said(&[b"true", b"false"]), Some(false));
    assert_eq!(said(&[b"\xff\xfe", b"maybe"]), None);
    assert_eq!(said(&[]), None);
}

#[test]
fn grpc_pushback_is_exact_or_stops() {
    let pushback = |values: &[&[u8]]| {
        let lines: Vec<_> = values.iter().map(|value| ("grpc-retry-pushback-ms", *value)).collect();
        grpc_pushback(&headers(&lines))
    };
    assert_eq!(pushback(&[]), None);
    assert_eq!(pushback(&[b"0"]), Some(Pushback::After(Duration::ZERO)));
    assert_eq!(pushback(&[b"1500"]), Some(Pushback::After(Duration::from_millis(1_500))));
    for stop in
        [&[b"-1".as_slice()] as &[&[u8]], &[b"soon"], &[b"99999999999"], &[b""], &[b"\xff"], &[b"1", b"1"]]
    {
        assert_eq!(pushback(stop), Some(Pushback::Stop), "{stop:?}");
    }
}

#[test]
fn huge_and_hostile_values_give_none_and_take_no_time() {
    let digits = vec![b'9'; 1 << 20];
    let commas = vec![b','; 1 << 20];
    let garbage = b"\xff\x80\xc3(";
    for name in ["retry-after", "retry-after-ms", "x-ratelimit-reset", "ratelimit"] {
        assert_eq!(retry_after(&headers(&[(name, &digits), (name, &commas), (name, garbage)]), now()), None);
    }
    // Hundreds of limits, each with hundreds of values: still one pass.
    let mut many = HeaderMap::new();
    for limit in 0..500 {
        for _ in 0..10 {
            let name = HeaderName::from_bytes(format!("x-ratelimit-reset-{limit}").as_bytes()).unwrap();
            many.append(name, HeaderValue::from(limit + 1));
        }
    }
    assert_eq!(retry_after(&many, now()), ms(500_000));
}

/// What is left of requests and of tokens, each with its reset.
fn left(lines: &[(&str, &str)]) -> [Option<(u64, Option<Duration>)>; 2] {
    let lines: Vec<_> = lines.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let Remaining { requests, tokens } = remaining(&headers(&lines), now());
    [requests, tokens].map(|left| left.map(|Left { left, reset }| (left, reset)))
}

#[test]
fn what_is_left_is_read_as_each_provider_says_it() {
    let openai = [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-remaining-tokens", "149984"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ];
    assert_eq!(left(&openai), [Some((59, ms(1_000))), Some((149_984, ms(360_000)))]);
    let anthropic = [
        ("anthropic-ratelimit-requests-remaining", "3"),
        ("anthropic-ratelimit-requests-reset", "2023-11-14T22:13:50Z"),
        ("anthropic-ratelimit-tokens-remaining", "48000"),
        ("anthropic-ratelimit-tokens-reset", "2023-11-14T22:13:30Z"),
        ("anthropic-ratelimit-input-tokens-remaining", "40000"),
        ("anthropic-ratelimit-input-tokens-reset", "2023-11-14T22:13:30Z"),
        ("anthropic-ratelimit-output-tokens-remaining", "8000"),
        ("anthropic-ratelimit-output-tokens-reset", "2023-11-14T22:13:25Z"),
    ];
    assert_eq!(left(&anthropic), [Some((3, ms(30_000))), Some((48_000, ms(10_000)))]);
    // Nothing is left of one part: no call has enough.
    let used_up =
        [&anthropic[..6], &[("anthropic-ratelimit-output-tokens-remaining", "0"), anthropic[7]]].concat();
    assert_eq!(left(&used_up)[1], Some((0, ms(5_000))));
    assert_eq!(left(&anthropic[4..]), [None, Some((48_000, ms(10_000)))]);
    assert_eq!(left(&anthropic[4..6]), [None, None], "a part of them says nothing of the whole");
    // Azure names no reset.
    assert_eq!(left(&[("x-ratelimit-remaining-tokens", "7000")]), [None, Some((7_000, None))]);
    let of_day = [
        ("x-ratelimit-remaining-requests-day", "1"),
        ("x-ratelimit-reset-requests-day", "3600"),
        ("x-ratelimit-remaining-tokens-minute", "9"),
        ("x-ratelimit-reset-tokens-minute", "0.5"),
    ];
    assert_eq!(left(&of_day), [Some((1, ms(3_600_000))), Some((9, ms(500)))]);
    assert_eq!(left(&[("ratelimit", "limit=10, remaining=4, reset=30")]), [Some((4, ms(30_000))), None]);
    assert_eq!(left(&[("ratelimit", r#""burst";r=5;t=1, "day";r=2;t=60"#)]), [Some((2, ms(60_000))), None]);
    assert_eq!(
        left(&[("x-ratelimit-remaining", "2"), ("x-ratelimit-reset", "1700000030")])[0],
        Some((2, ms(30_000)))
    );
    assert_eq!(left(&[("x-ratelimit-remaining-images", "2")]), [None, None]);
}

#[test]
fn what_no_server_should_say_of_what_is_left_says_nothing_or_saturates() {
    for wrong in ["-1", "NaN", "inf", "", "soon", "0x7"] {
        assert_eq!(left(&[("x-ratelimit-remaining-tokens", wrong)]), [None, None], "{wrong}");
    }
    assert_eq!(left(&[("x-ratelimit-remaining-tokens", "1e300")])[1], Some((u64::MAX, None)));
    // It is over, or nobody knows when it will be.
    for over in ["0", "0s", "1699999999", "-7", "soon", "NaN"] {
        let lines = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", over)];
        assert_eq!(left(&lines), [None, None], "{over}");
    }
    let far = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "1e30")];
    assert_eq!(left(&far)[1], Some((0, Some(LONGEST))));
    // Of two limits of one kind the tighter counts, and of two that are as tight the one that is reset later.
    let two = [
        ("x-ratelimit-remaining-requests", "5"),
        ("x-ratelimit-reset-requests", "10"),
        ("ratelimit-remaining", "5"),
        ("ratelimit-reset", "90"),
        ("x-ratelimit-remaining-requests-day", "900"),
    ];
    assert_eq!(left(&two)[0], Some((5, ms(90_000))));
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("retry-after".to_owned()),
        Just("retry-after-ms".to_owned()),
        Just("ratelimit".to_owned()),
        Just("x-should-retry".to_owned()),
        "(x-)?ratelimit-(remaining|reset)(-[a-z]{0,4}|-(input-)?tokens|-requests)?",
        "anthropic-ratelimit-[a-z]{1,3}-(remaining|reset|status)",
    ]
}

fn any_value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        "[0-9a-zµ:., =;\"T+Z-]{0,40}".prop_map(String::into_bytes),
        "[0-9]{1,20}(\\.[0-9]{0,9})?(e[0-9]{1,4})?(ms|s|m|h)?".prop_map(String::into_bytes),
        "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z".prop_map(String::into_bytes),
    ]
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_every_advice_is_in_range(
        lines in proptest::collection::vec((any_name(), any_value()), 0..12),
        now in 0u64..=253_402_300_799,
    ) {
        let mut headers = HeaderMap::new();
        for (name, value) in &lines {
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) {
                headers.append(name, value);
            }
        }
        let now = UNIX_EPOCH + Duration::from_secs(now);
        let _ = should_retry(&headers);
        for wait in [retry_after(&headers, now), exhausted_reset(&headers, now)].into_iter().flatten() {
            prop_assert!(wait > Duration::ZERO && wait <= LONGEST);
        }
        let Remaining { requests, tokens } = remaining(&headers, now);
        for reset in [requests, tokens].into_iter().flatten().filter_map(|left| left.reset) {
            prop_assert!(reset > Duration::ZERO && reset <= LONGEST);
        }
    }

    #[test]
    fn a_number_of_seconds_is_read_as_it_is(seconds in 1u64..1_000_000_000, millis in 0u64..1_000) {
        let text = format!("{seconds}.{millis:03}");
        let read = parse_retry_after(&text, now()).unwrap();
        let wanted = Duration::from_millis(seconds * 1_000 + millis);
        prop_assert!(read.abs_diff(wanted) < Duration::from_micros(1));
    }
}
