//! The entries of a price map.

use std::{borrow::Cow, collections::HashMap};

use serde_json::value::RawValue;

use super::{Price, PriceError, Rates, Tier, decimal::Decimal};

type Object<'a> = HashMap<Cow<'a, str>, &'a RawValue>;

/// The prices of all models that are paid by the token.
pub(super) fn read(text: &str) -> Result<HashMap<Box<str>, Price>, PriceError> {
    let file: Object<'_> = serde_json::from_str(text).map_err(|err| PriceError::new("", err))?;
    let mut models = HashMap::new();
    for (model, entry) in file {
        // It explains the fields.
        if model == "sample_spec" {
            continue;
        }
        let fields: Object<'_> =
            serde_json::from_str(entry.get()).map_err(|_| PriceError::new(&*model, "not an object"))?;
        if let Some(price) = price(&model, &fields)? {
            models.insert(model.into(), price);
        }
    }
    Ok(models)
}

fn price(model: &str, fields: &Object<'_>) -> Result<Option<Price>, PriceError> {
    let mut base = Rates::default();
    let mut tiers: Vec<Tier> = Vec::new();
    for (name, value) in fields {
        let (field, above) = match name.split_once("_above_") {
            Some((field, above)) => match thousands(above) {
                Some(above) => (field, Some(above)),
                // Such as a cache that is kept for longer than an hour.
                None => continue,
            },
            None => (&**name, None),
        };
        let rates = match above {
            None => &mut base,
            Some(above) => tier(&mut tiers, above),
        };
        set(rates, field, model, name, value)?;
    }
    if let Some(list) = fields.get("tiered_pricing") {
        listed(model, list, &mut base, &mut tiers)?;
    }
    tiers.retain(|tier| tier.rates != Rates::default());
    tiers.sort_by_key(|tier| tier.above);
    // Each goes on with what the one before it said.
    for at in 1..tiers.len() {
        let before = tiers[at - 1].rates;
        tiers[at].rates.fill(&before);
    }
    Ok((base.is_priced() || tiers.iter().any(|tier| tier.rates.is_priced())).then_some(Price { base, tiers }))
}

/// `128k_tokens`.
fn thousands(above: &str) -> Option<u64> {
    above.strip_suffix("k_tokens")?.parse::<u64>().ok()?.checked_mul(1_000)
}

fn tier(tiers: &mut Vec<Tier>, above: u64) -> &mut Rates {
    let at = tiers.iter().position(|tier| tier.above == above).unwrap_or_else(|| {
        tiers.push(Tier { above, rates: Rates::default() });
        tiers.len() - 1
    });
    &mut tiers[at].rates
}

/// Prices as a list of ranges of prompt tokens. The first range begins at 0, and its prices are those of the model.
fn listed(model: &str, list: &RawValue, base: &mut Rates, tiers: &mut Vec<Tier>) -> Result<(), PriceError> {
    let wrong = |message: &str| PriceError::new(format!("{model}, tiered_pricing"), message);
    let list: Vec<Object<'_>> = serde_json::from_str(list.get()).map_err(|_| wrong("no list of objects"))?;
    // Where it is not tokens that are paid for, the ranges are of something else: of a search, of the results that it gives.
    for fields in list.iter().filter(|fields| fields.keys().any(|name| is_price(name))) {
        let range = fields.get("range").and_then(|raw| serde_json::from_str::<[f64; 2]>(raw.get()).ok());
        let start = range.map(|[start, _]| start).filter(|start| *start >= 0.0);
        // `as` saturates.
        let start = start.ok_or_else(|| wrong("a range is two numbers of at least 0"))? as u64;
        let rates = if start == 0 { &mut *base } else { tier(tiers, start) };
        for (name, value) in fields {
            set(rates, name, model, name, value)?;
        }
    }
    Ok(())
}

/// Whether a field is a price that is read.
fn is_price(field: &str) -> bool {
    rate(&mut Rates::default(), field).is_some()
}

fn rate<'a>(rates: &'a mut Rates, field: &str) -> Option<&'a mut Option<Decimal>> {
    Some(match field {
        "input_cost_per_token" => &mut rates.input,
        "output_cost_per_token" => &mut rates.output,
        "cache_read_input_token_cost" => &mut rates.cache_read,
        "cache_creation_input_token_cost" => &mut rates.cache_write,
        "output_cost_per_reasoning_token" => &mut rates.reasoning,
        _ => return None,
    })
}

fn set(rates: &mut Rates, field: &str, model: &str, name: &str, value: &RawValue) -> Result<(), PriceError> {
    let Some(rate) = rate(rates, field) else { return Ok(()) };
    let text = value.get();
    if text == "null" {
        return Ok(());
    }
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let price = Decimal::parse(bare).ok_or_else(|| {
        PriceError::new(format!("{model}, {name}"), format_args!("`{bare:.40}` is no price"))
    })?;
    *rate = Some(price);
    Ok(())
}

impl Rates {
    const fn is_priced(&self) -> bool {
        self.input.is_some() || self.output.is_some()
    }

    fn fill(&mut self, other: &Self) {
        self.input = self.input.or(other.input);
        self.cache_read = self.cache_read.or(other.cache_read);
        self.cache_write = self.cache_write.or(other.cache_write);
        self.output = self.output.or(other.output);
        self.reasoning = self.reasoning.or(other.reasoning);
    }
}
