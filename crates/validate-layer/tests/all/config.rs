//! Bad configuration is an error that names the option.

use validate_layer::{Answer, ValidateLayer, checks::Length};

#[test]
fn each_nonsense_is_refused_by_name() {
    let builder = ValidateLayer::builder;
    let ok = |_: &Answer| Ok::<(), &str>(());
    let table = [
        (builder().name(" ").build(), "name"),
        (builder().max_body(0).build(), "max_body"),
        (builder().require("").build(), "require"),
        (builder().require("city").build(), "require"),
        (builder().require("/a~2").build(), "require"),
        (builder().require("/a~").build(), "require"),
        (builder().expected_length(Length::words(0)).build(), "expected_length"),
        (builder().expected_length(Length::chars(0)).build(), "expected_length"),
        (builder().expected_length(Length::words(9).below(f64::NAN)).build(), "below"),
        (builder().expected_length(Length::words(9).below(f64::INFINITY)).build(), "below"),
        (builder().expected_length(Length::words(9).below(-0.1)).build(), "below"),
        (builder().expected_length(Length::words(9).below(0.0)).build(), "below"),
        (builder().expected_length(Length::words(9).below(1.1)).build(), "below"),
        (builder().tools([""]).build(), "tools"),
        (builder().tools_without_parameters([" "]).build(), "tools"),
        (builder().check_fn("", ok).build(), "check_fn"),
        (builder().allow_empty().require("/a").build(), "allow_empty"),
    ];
    for (result, field) in table {
        let err = result.expect_err(field);
        assert_eq!((err.field(), err.builder()), (field, "ValidateLayer"));
        assert!(err.to_string().contains("expected"), "{err}");
    }
}

#[test]
fn extremes_that_mean_something_are_accepted() {
    let builder = ValidateLayer::builder;
    assert!(builder().max_body(usize::MAX).build().is_ok());
    assert!(builder().expected_length(Length::words(usize::MAX).below(1.0)).build().is_ok());
    assert!(builder().tools(Vec::<String>::new()).build().is_ok());
    assert!(builder().require("/").require("/a~0b/~1").build().is_ok());
}
