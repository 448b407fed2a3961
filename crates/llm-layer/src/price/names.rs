//! How a model is found under the names that it goes by.

use std::collections::HashMap;

use super::Price;

/// The regions of Bedrock's inference profiles.
const REGIONS: [&str; 8] = ["us.", "eu.", "apac.", "global.", "us-gov.", "jp.", "au.", "ca."];

pub(super) fn find<'a>(
    models: &'a HashMap<Box<str>, Price>,
    provider: Option<&str>,
    model: &str,
) -> Option<&'a Price> {
    let get = |name: &str| {
        let of_provider = provider.and_then(|prefix| models.get(format!("{prefix}/{name}").as_str()));
        of_provider.or_else(|| models.get(name))
    };
    spellings(model).find_map(get).or_else(|| spellings(model).filter_map(undated).find_map(get))
}

/// The name, then without what stands before each slash, then without a region.
fn spellings(model: &str) -> impl Iterator<Item = &str> {
    let bare = model.rsplit('/').next().unwrap_or(model);
    let region = REGIONS.iter().find_map(|region| bare.strip_prefix(region));
    let shorter = std::iter::successors(Some(model), |name| name.split_once('/').map(|(_, rest)| rest));
    shorter.chain(region)
}

/// The name without its date, or `latest`, at the end.
fn undated(name: &str) -> Option<&str> {
    if let Some(name) = name.strip_suffix("-latest").or_else(|| name.strip_suffix(":latest")) {
        return Some(name);
    }
    let is_number =
        |text: &str, digits: usize| text.len() == digits && text.bytes().all(|b| b.is_ascii_digit());
    let (rest, last) = name.rsplit_once(['-', '@'])?;
    if is_number(last, 8) || is_number(last, 4) {
        return Some(rest);
    }
    let (rest, month) = rest.rsplit_once('-')?;
    let (rest, year) = rest.rsplit_once('-')?;
    (is_number(last, 2) && is_number(month, 2) && is_number(year, 4)).then_some(rest)
}
