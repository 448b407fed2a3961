use proptest::prelude::*;

use super::*;

fn usage(buckets: [u64; 5]) -> Usage {
    let [input, cache_read, cache_write, output, reasoning] = buckets.map(Some);
    Usage { input, cache_read, cache_write, output, reasoning }
}

fn micros(table: &PriceTable, model: &str, buckets: [u64; 5]) -> Option<u64> {
    table.cost(model, &usage(buckets)).unwrap().micros
}

fn table(entry: &str) -> PriceTable {
    PriceTable::from_json(&format!(r#"{{"m": {entry}}}"#)).unwrap()
}

#[test]
fn each_bucket_has_its_price_and_the_sum_is_rounded_up() {
    let table = table(
        r#"{"input_cost_per_token": 3e-06, "cache_read_input_token_cost": 3e-07, "cache_creation_input_token_cost": 3.75e-06,
            "output_cost_per_token": 1.5e-05, "output_cost_per_reasoning_token": 2e-05, "mode": "chat", "max_tokens": 8192}"#,
    );
    for (at, price) in [3_000, 300, 3_750, 15_000, 20_000].into_iter().enumerate() {
        let mut buckets = [0; 5];
        buckets[at] = 1_000;
        assert_eq!(micros(&table, "m", buckets), Some(price));
    }
    assert_eq!(micros(&table, "m", [0, 1, 0, 0, 0]), Some(1), "0.3, rounded up");
    assert_eq!(micros(&table, "m", [1, 1, 1, 1, 1]), Some(43), "42.05, rounded once");
}

#[test]
fn g95_a_missing_price_is_not_free() {
    let table = table(r#"{"input_cost_per_token": 2e-06, "output_cost_per_token": 8e-06}"#);
    assert_eq!(micros(&table, "m", [0, 10, 0, 0, 0]), Some(20), "cached, as input");
    assert_eq!(micros(&table, "m", [0, 0, 10, 0, 0]), Some(20), "written, as input");
    assert_eq!(micros(&table, "m", [0, 0, 0, 0, 10]), Some(80), "reasoning, as output");
    let table = self::table(r#"{"output_cost_per_token": 8e-06}"#);
    assert_eq!(micros(&table, "m", [1, 1, 1, 1, 1]), Some(40));
    let table = self::table(r#"{"input_cost_per_token": 2e-06, "cache_read_input_token_cost": null}"#);
    assert_eq!(micros(&table, "m", [1, 1, 1, 1, 1]), Some(10));
    let free = self::table(r#"{"input_cost_per_token": 2e-06, "cache_read_input_token_cost": 0.0}"#);
    assert_eq!(micros(&free, "m", [0, 10, 0, 0, 0]), Some(0), "an explicit zero is honoured");
}

#[test]
fn a_long_prompt_has_the_prices_of_its_tier_for_all_of_its_tokens() {
    let table = table(
        r#"{"input_cost_per_token": 1e-06, "output_cost_per_token": 4e-06, "cache_read_input_token_cost": 5e-07,
            "input_cost_per_token_above_128k_tokens": 2e-06, "output_cost_per_token_above_128k_tokens": 8e-06,
            "input_cost_per_token_above_200k_tokens": 3e-06, "cache_creation_input_token_cost_above_1hr": 9}"#,
    );
    assert_eq!(micros(&table, "m", [128_000, 0, 0, 1, 0]), Some(128_004));
    assert_eq!(micros(&table, "m", [128_001, 0, 0, 1, 0]), Some(256_010));
    // Cached tokens are a part of the prompt; what a tier does not say holds as before.
    assert_eq!(micros(&table, "m", [1, 128_000, 0, 1, 0]), Some(2 + 64_000 + 8));
    assert_eq!(micros(&table, "m", [200_001, 0, 0, 1, 0]), Some(600_011));
}

#[test]
fn ranges_in_a_list_are_tiers_too() {
    let table = table(
        r#"{"tiered_pricing": [{"range": [0, 32000], "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06},
            {"range": [32000.0, 256000.0], "input_cost_per_token": 3e-06, "output_cost_per_token": 4e-06}]}"#,
    );
    assert_eq!(micros(&table, "m", [32_000, 0, 0, 1, 0]), Some(32_002));
    assert_eq!(micros(&table, "m", [32_001, 0, 0, 1, 0]), Some(96_007));
}

#[test]
fn a_model_is_found_under_its_provider_its_region_and_its_date() {
    let names = [
        "gpt-4o",
        "gpt-4o-2024-05-13",
        "azure/gpt-4o",
        "anthropic.claude-3-haiku-20240307-v1:0",
        "claude-3-haiku",
        "gpt-4",
        "llama3",
    ];
    let table = names
        .iter()
        .enumerate()
        .fold(PriceTable::new(), |table, (at, name)| table.with(*name, Price::per_million(at as u64 + 1, 0)));
    let found = |table: &PriceTable, model: &str| {
        table.price(model).map(|price| names[price.micros(&usage([1_000_000, 0, 0, 0, 0])) as usize - 1])
    };
    for (model, name) in [
        ("gpt-4o", "gpt-4o"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("openrouter/openai/gpt-4o", "gpt-4o"),
        ("openrouter/openai/gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("openai/gpt-4o-2024-11-20", "gpt-4o"),
        ("azure/gpt-4o", "azure/gpt-4o"),
        ("azure/gpt-4o-2024-11-20", "azure/gpt-4o"),
        ("us.anthropic.claude-3-haiku-20240307-v1:0", "anthropic.claude-3-haiku-20240307-v1:0"),
        ("bedrock/eu.anthropic.claude-3-haiku-20240307-v1:0", "anthropic.claude-3-haiku-20240307-v1:0"),
        ("claude-3-haiku-20240307", "claude-3-haiku"),
        ("claude-3-haiku@20240307", "claude-3-haiku"),
        ("claude-3-haiku-latest", "claude-3-haiku"),
        ("gpt-4-0613", "gpt-4"),
        ("llama3:latest", "llama3"),
    ] {
        assert_eq!(found(&table, model), Some(name), "{model}");
    }
    for unknown in ["gpt-4o-mini", "gpt-4.1", "gpt", "gpt-4o-20x4-01-01", "", "/", "-", "@", "llama3:8b"] {
        assert_eq!(found(&table, unknown), None, "{unknown}");
    }
    assert_eq!(found(&table.provider("azure"), "gpt-4o-2024-11-20"), Some("azure/gpt-4o"));
}

#[test]
fn an_unknown_model_is_denied_or_has_a_default_price_or_is_only_counted() {
    let used = usage([1, 2, 3, 4, 5]);
    let deny = PriceTable::new();
    let err = deny.cost("x", &used).unwrap_err();
    assert_eq!((err.model(), err.to_string().as_str()), ("x", "the model `x` has no price"));
    assert_eq!(Fault::from(err).class(), Class::Denied(Denier::Budget));
    let default = deny.clone().unknown(UnknownModel::Default(Price::per_million(1_000_000, 2_000_000)));
    assert_eq!(default.cost("x", &used), Ok(Cost { micros: Some(24), tokens: 15, is_known: false }));
    let count = deny.unknown(UnknownModel::CountOnly);
    assert_eq!(count.cost("x", &used), Ok(Cost { micros: None, tokens: 15, is_known: false }));
}

#[test]
fn what_is_not_paid_by_the_token_is_no_entry_and_nonsense_is_refused_by_name() {
    let table = PriceTable::from_json(
        r#"{"sample_spec": {"input_cost_per_token": "a number"}, "pictures": {"output_cost_per_image": 0.04, "max_tokens": "x"},
            "exa_ai/search": {"mode": "search", "tiered_pricing": [{"input_cost_per_query": 0.005, "max_results_range": [0, 25]},
                {"input_cost_per_query": 0.025, "max_results_range": [26, 100]}]}}"#,
    )
    .unwrap();
    assert!(table.is_empty());
    for (file, at) in [
        ("[]", ""),
        ("{", ""),
        (r#"{"m": 1}"#, "m"),
        (r#"{"m": {"input_cost_per_token": -1}}"#, "m, input_cost_per_token"),
        (r#"{"m": {"input_cost_per_token": {}}}"#, "m, input_cost_per_token"),
        (r#"{"m": {"tiered_pricing": 1}}"#, "m, tiered_pricing"),
        (
            r#"{"m": {"tiered_pricing": [{"range": [-1, 2], "input_cost_per_token": 1}]}}"#,
            "m, tiered_pricing",
        ),
        (r#"{"m": {"tiered_pricing": [{"input_cost_per_token": 1}]}}"#, "m, tiered_pricing"),
    ] {
        assert_eq!(PriceTable::from_json(file).unwrap_err().at(), at, "{file}");
    }
}

#[test]
fn what_is_too_large_saturates() {
    let table = table(r#"{"input_cost_per_token": 1e300, "output_cost_per_token": 1e-6}"#);
    assert_eq!(micros(&table, "m", [1, 0, 0, u64::MAX, 0]), Some(u64::MAX));
    assert_eq!(micros(&table, "m", [0, 0, 0, u64::MAX, 0]), Some(u64::MAX));
    assert_eq!(micros(&table, "m", [0, 0, 0, 0, 0]), Some(0));
}

proptest! {
    /// Prices of up to twelve places, against sums of whole numbers.
    #[test]
    fn a_sum_is_exact_and_rounded_up(
        prices in proptest::array::uniform5(0_u64..1_000_000_000),
        tokens in proptest::array::uniform5(0_u64..10_000_000),
    ) {
        let [input, read, write, output, reasoning] = prices.map(|price| format!("{price}e-12"));
        let table = table(&format!(
            r#"{{"input_cost_per_token": {input}, "cache_read_input_token_cost": {read}, "cache_creation_input_token_cost": {write},
                "output_cost_per_token": {output}, "output_cost_per_reasoning_token": {reasoning}}}"#
        ));
        let exact: u128 = prices.iter().zip(tokens).map(|(price, tokens)| u128::from(*price) * u128::from(tokens)).sum();
        prop_assert_eq!(micros(&table, "m", tokens), Some(u64::try_from(exact.div_ceil(1_000_000)).unwrap()));
    }

    #[test]
    fn more_tokens_never_cost_less_within_a_tier(
        prices in proptest::array::uniform5(0_u64..u64::MAX),
        tokens in proptest::array::uniform5(0_u64..u64::MAX / 2),
        more in proptest::array::uniform5(0_u64..u64::MAX / 2),
    ) {
        let [input, read, write, output, reasoning] = prices;
        let price = Price::per_million(input, output).cache_read(read).cache_write(write).reasoning(reasoning);
        let sum = std::array::from_fn(|at| tokens[at] + more[at]);
        prop_assert!(price.micros(&usage(sum)) >= price.micros(&usage(tokens)));
    }

    #[test]
    fn any_file_and_any_name_is_read_without_a_panic(file in ".{0,80}", value in "[-0-9.eE\"a-z\\[\\]{}:,]{0,20}", name in "[a-z0-9/@:.-]{0,30}") {
        let _ = PriceTable::from_json(&file);
        let table = PriceTable::from_json(&format!(r#"{{"m": {{"input_cost_per_token": {value}, "tiered_pricing": [{value}]}}}}"#));
        let _ = table.unwrap_or_default().with("m-1", Price::per_million(1, 1)).price(&name);
    }
}
