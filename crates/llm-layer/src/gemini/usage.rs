//! Gemini's token counts, brought into buckets that do not overlap.

use failsoft_core::Usage;

use crate::{
    lens,
    mould::{COUNTS, Counted},
};

/// Token counts as they were sent: cumulative, so that of each the last value counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    prompt: Option<u64>,
    cached: Option<u64>,
    /// What the results of built-in tools added to the prompt.
    tools: Option<u64>,
    candidates: Option<u64>,
    thoughts: Option<u64>,
    total: Option<u64>,
}

impl Counts {
    /// Takes over what a `usageMetadata` object knows.
    pub(super) fn set(&mut self, raw: &str) {
        if let Some(fields) = fields(raw) {
            self.set_counted(&fields.map(|raw| raw.and_then(lens::count)));
        }
    }

    /// The same, where it was read already.
    pub(super) fn set_counted(&mut self, counted: &Counted) {
        let [prompt, cached, tools, candidates, thoughts, total, _] = *counted;
        for (mine, later) in [
            (&mut self.prompt, prompt),
            (&mut self.cached, cached),
            (&mut self.tools, tools),
            (&mut self.candidates, candidates),
            (&mut self.thoughts, thoughts),
            (&mut self.total, total),
        ] {
            *mine = later.or(*mine);
        }
    }

    /// `promptTokenCount` includes what was read from a cache; `candidatesTokenCount` does not include thoughts. A count
    /// of zero is left out: where the total shows that nothing is missing, it is one.
    pub(super) fn usage(&self) -> Usage {
        let Self { prompt, cached, tools, candidates, thoughts, total } = *self;
        let input =
            prompt.map(|all| all.saturating_sub(cached.unwrap_or(0)).saturating_add(tools.unwrap_or(0)));
        let known = [prompt, tools, thoughts].into_iter().flatten().fold(0, u64::saturating_add);
        let none = prompt.is_some() && total == Some(known);
        Usage {
            input,
            cache_read: cached,
            cache_write: None,
            output: candidates.or(if none { Some(0) } else { None }),
            reasoning: thoughts,
        }
    }
}

/// The fields of a `usageMetadata` object that are read as counts, in the order of [`Counts::set_counted`].
pub(super) fn fields(raw: &str) -> Option<[Option<&str>; COUNTS]> {
    let names = [
        "promptTokenCount",
        "cachedContentTokenCount",
        "toolUsePromptTokenCount",
        "candidatesTokenCount",
        "thoughtsTokenCount",
        "totalTokenCount",
    ];
    let [prompt, cached, tools, candidates, thoughts, total] = lens::fields(raw, names)?;
    Some([prompt, cached, tools, candidates, thoughts, total, None])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(raw: &str) -> Usage {
        let mut counts = Counts::default();
        counts.set(raw);
        counts.usage()
    }

    #[test]
    fn cached_tokens_are_taken_out_of_the_prompt_and_thoughts_stand_beside_the_candidates() {
        let usage =
            of(r#"{"promptTokenCount":1200,"cachedContentTokenCount":1000,"toolUsePromptTokenCount":50,
            "candidatesTokenCount":30,"thoughtsTokenCount":70,"totalTokenCount":1350}"#);
        let disjoint = [usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning];
        assert_eq!(disjoint, [Some(250), Some(1000), None, Some(30), Some(70)]);
        assert_eq!(usage.total(), 1350);
    }

    #[test]
    fn cumulative_counts_of_the_chunks_are_overwritten_and_not_added() {
        // G91: chunks 1..=100 are 100, not 5050.
        let mut counts = Counts::default();
        for tokens in 1..=100 {
            counts.set(&format!(r#"{{"promptTokenCount":9,"candidatesTokenCount":{tokens}}}"#));
        }
        assert_eq!((counts.usage().input, counts.usage().output), (Some(9), Some(100)));
    }

    #[test]
    fn what_is_left_out_is_zero_only_where_the_total_shows_it() {
        // G96
        assert_eq!(of(r#"{"promptTokenCount":20,"totalTokenCount":20}"#).output, Some(0));
        assert_eq!(
            of(r#"{"promptTokenCount":20,"thoughtsTokenCount":5,"totalTokenCount":25}"#).output,
            Some(0)
        );
        assert_eq!(of(r#"{"promptTokenCount":20,"totalTokenCount":29}"#).output, None);
        assert_eq!(of(r#"{"promptTokenCount":20}"#).output, None);
        assert!(of("{}").is_unknown() && of("7").is_unknown());
    }
}
