//! OpenAI's token counts, brought into buckets that do not overlap.

use failsoft_core::Usage;

use crate::{
    lens,
    mould::{COUNTS, Counted},
};

/// The tokens in a `usage` object.
///
/// `prompt_tokens`, which Responses calls `input_tokens`, includes what was read from or written to a cache, and `completion_tokens` includes reasoning; both
/// are taken
/// out. Where `total_tokens` shows that reasoning was counted beside the completion, it is left in.
pub(crate) fn of(raw: &str) -> Usage {
    let mut counts = Counts::default();
    counts.set(raw);
    counts.usage()
}

/// Token counts as they were sent. In a stream they are cumulative: of each the last value counts. They are brought
/// into buckets only then, or a later total would be added to an earlier part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    reasoning: Option<u64>,
}

impl Counts {
    /// Takes over what a `usage` object knows.
    pub(crate) fn set(&mut self, raw: &str) {
        if let Some(fields) = fields(raw) {
            self.set_counted(&fields.map(|raw| raw.and_then(lens::count)));
        }
    }

    /// The same, where it was read already.
    pub(crate) fn set_counted(&mut self, counted: &Counted) {
        let [prompt, completion, total, cached, written, reasoning, hit] = *counted;
        self.prompt = prompt.or(self.prompt);
        self.completion = completion.or(self.completion);
        self.total = total.or(self.total);
        self.cache_read = cached.or(hit).or(self.cache_read);
        self.cache_write = written.or(self.cache_write);
        self.reasoning = reasoning.or(self.reasoning);
    }

    pub(crate) fn usage(&self) -> Usage {
        let Self { prompt, completion, total, cache_read, cache_write, reasoning } = *self;
        let parts = [prompt, completion, reasoning].into_iter().flatten().fold(0, u64::saturating_add);
        let beside = reasoning.is_some_and(|tokens| tokens > 0) && total == Some(parts);
        let inside = if beside { 0 } else { reasoning.unwrap_or(0) };
        let cached = cache_read.unwrap_or(0).saturating_add(cache_write.unwrap_or(0));
        Usage {
            input: prompt.map(|all| all.saturating_sub(cached)),
            cache_read,
            cache_write,
            output: completion.map(|all| all.saturating_sub(inside)),
            reasoning,
        }
    }
}

/// The fields of a `usage` object that are read as counts, in the order of [`Counts::set_counted`].
pub(crate) fn fields(raw: &str) -> Option<[Option<&str>; COUNTS]> {
    let names = [
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "prompt_tokens_details",
        "completion_tokens_details",
        "prompt_cache_hit_tokens",
        "input_tokens",
        "output_tokens",
        "input_tokens_details",
        "output_tokens_details",
    ];
    let [prompt, completion, total, of_prompt, of_completion, hit, input, output, of_input, of_output] =
        lens::fields(raw, names)?;
    let [cached, written] = details(of_prompt.or(of_input), ["cached_tokens", "cache_write_tokens"]);
    let [reasoning] = details(of_completion.or(of_output), ["reasoning_tokens"]);
    Some([prompt.or(input), completion.or(output), total, cached, written, reasoning, hit])
}

fn details<'a, const N: usize>(raw: Option<&'a str>, names: [&str; N]) -> [Option<&'a str>; N] {
    raw.and_then(|raw| lens::fields(raw, names)).unwrap_or([None; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_and_reasoning_tokens_are_taken_out_of_the_totals() {
        // G94
        let usage = of(r#"{"prompt_tokens":1200,"completion_tokens":80,"total_tokens":1280,
            "prompt_tokens_details":{"cached_tokens":1024,"cache_write_tokens":100},
            "completion_tokens_details":{"reasoning_tokens":64}}"#);
        let disjoint = [usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning];
        assert_eq!(disjoint, [Some(76), Some(1024), Some(100), Some(16), Some(64)]);
        assert_eq!(usage.total(), 1280);
    }

    #[test]
    fn what_is_missing_is_not_zero_and_an_explicit_zero_is_not_missing() {
        // G96
        let usage = of(r#"{"prompt_tokens":0,"completion_tokens":null}"#);
        assert_eq!((usage.input, usage.output, usage.cache_read), (Some(0), None, None));
        assert!(of("7").is_unknown() && of("{}").is_unknown());
    }

    #[test]
    fn reasoning_counted_beside_the_completion_is_not_taken_out_of_it() {
        let usage = of(r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":115,
            "completion_tokens_details":{"reasoning_tokens":100}}"#);
        assert_eq!((usage.output, usage.reasoning, usage.total()), (Some(5), Some(100), 115));
    }

    #[test]
    fn absurd_counts_saturate() {
        let usage = of(r#"{"prompt_tokens":1,"completion_tokens":-4,
            "prompt_tokens_details":{"cached_tokens":1e300}}"#);
        assert_eq!((usage.input, usage.cache_read, usage.output), (Some(0), Some(u64::MAX), None));
    }

    #[test]
    fn later_counts_replace_earlier_ones_and_a_part_is_not_counted_beside_a_later_total() {
        // G91, G92, V-H1
        let mut counts = Counts::default();
        counts
            .set(r#"{"prompt_tokens":10,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":4}}"#);
        counts.set(r#"{"prompt_tokens":10,"completion_tokens":7}"#);
        counts.set("{}");
        let usage = counts.usage();
        assert_eq!((usage.input, usage.cache_read, usage.output), (Some(6), Some(4), Some(7)));
        assert_eq!(usage.total(), 17);
    }

    #[test]
    fn deepseek_names_its_cache_hits_itself() {
        let usage = of(r#"{"prompt_tokens":10,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":2}"#);
        assert_eq!((usage.input, usage.cache_read), (Some(2), Some(8)));
    }
}
