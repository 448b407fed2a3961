//! The targets of `fuzz/`, with what proptest makes up.

use proptest::prelude::*;

/// Bytes, mostly of the kind that these formats are made of.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: [&str; 34] = [
        "data:",
        "data: ",
        "event: ",
        "event: error",
        "\n",
        "\n\n",
        "\r",
        "\r\n",
        ":",
        " ",
        "[DONE]",
        "{",
        "}",
        "[",
        "]",
        ",",
        "\"",
        "\\",
        "\"choices\":[{\"delta\":{\"content\":\"a\"}}]",
        "\"error\":{\"code\":429}",
        "\"finish_reason\":\"stop\"",
        "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"},\"finish_reason\":null}]}",
        "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"c\"}}",
        "{\"type\":\"response.output_text.delta\",\"delta\":\"d\"}",
        "\"usage\":{\"prompt_tokens\":3}",
        "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"e\"}]}}]}",
        "{\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":3}}",
        "{\"contentBlockDelta\":{\"delta\":{\"text\":\"f\"}}}",
        "{\"message\":{\"content\":\"g\"},\"done\":false}",
        "12",
        "1e3",
        "-1",
        "Mon, 30 Nov 2026 10:00:00 GMT",
        "6m0s",
    ];
    let word = prop::sample::select(WORDS.to_vec()).prop_map(|word| word.as_bytes().to_vec());
    let any = proptest::collection::vec(any::<u8>(), 0..6);
    proptest::collection::vec(prop_oneof![4 => word, 1 => any], 0..24).prop_map(|parts| parts.concat())
}

/// The same behind a byte for each cut.
fn input() -> impl Strategy<Value = Vec<u8>> {
    (proptest::collection::vec(any::<u8>(), 0..8), bytes()).prop_map(|(cuts, body)| {
        let count = u8::try_from(cuts.len()).unwrap_or_default();
        [vec![count], cuts, body].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn events(input in input()) {
        hostile::events(&input);
    }

    #[test]
    fn lines(input in input()) {
        hostile::lines(&input);
    }

    #[test]
    fn arrays(input in input()) {
        hostile::arrays(&input);
    }

    #[test]
    fn messages(input in input()) {
        hostile::messages(&input);
    }

    #[test]
    fn answers(status in any::<u8>(), input in input()) {
        hostile::answers(&[vec![status], input].concat());
    }

    #[test]
    fn advice(input in bytes()) {
        hostile::advice(&input);
    }

    #[test]
    fn arguments(fragments in proptest::collection::vec((0u8..5, "[ -~é]{0,12}"), 0..12)) {
        let lines: Vec<Vec<u8>> =
            fragments.into_iter().map(|(index, text)| [vec![index], text.into_bytes()].concat()).collect();
        hostile::arguments(&lines.join(&b'\n'));
    }
}
