//! What is known of one attempt beside its body, and where that which is learnt goes.

use std::{error::Error, fmt, sync::Arc};

use failsoft_core::{Class, Facts, Fault, Finish, Insight, Slot, Usage, Verdict, verdict_of_head};
use http::{HeaderMap, StatusCode};

use crate::{Offered, Provider, error::ErrorBody, protocol::Config};

/// The name of this crate in the faults that it originates.
pub(crate) const LAYER: &str = "llm-layer";

/// A token of the large vocabularies has about so many bytes in any script: Chinese has three a character, and not much more than a
/// character a token.
const BYTES_OF_A_TOKEN: u64 = 4;

/// One attempt.
pub(crate) struct Attempt {
    pub(crate) config: Arc<Config>,
    /// The dialect of the answer.
    pub(crate) provider: Provider,
    pub(crate) offered: Offered,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) insight: Insight,
    /// Where the call that is current adds up what its attempts used. It closes with the decoder.
    pub(crate) slot: Option<Slot>,
}

impl Attempt {
    /// Says what was used so far: the last value counts.
    pub(crate) fn used(&mut self, usage: &Usage) {
        if let Some(slot) = &mut self.slot {
            slot.set(usage);
        }
    }

    /// Says what was written of an answer that was cut, or that nobody waited for, by its bytes: providers tell what they bill at the end,
    /// or a first token at the beginning.
    pub(crate) fn wrote(&mut self, bytes: u64) {
        let said = self.insight.usage();
        let written = bytes.div_ceil(BYTES_OF_A_TOKEN);
        if said.is_unknown() {
            if let Some(slot) = &mut self.slot {
                slot.saw(written);
            }
        } else if written > said.total_output() {
            let output = Some(written - said.reasoning.unwrap_or(0));
            self.used(&Usage { output, ..Usage::default() });
        }
    }

    /// Says what the outcome means: what is said last counts.
    pub(crate) fn ended(&mut self, class: Class) {
        if let Some(slot) = &mut self.slot {
            slot.ended(class);
        }
    }

    /// Writes down what was learnt; the verdict is for whoever hands the answer on.
    pub(crate) fn tell(&mut self, learnt: Facts) {
        self.used(&learnt.usage);
        self.insight.learn(|facts| {
            facts.report = learnt.report;
            facts.usage = learnt.usage;
            facts.finish = learnt.finish;
            facts.text = learnt.text;
            facts.tool_calls = learnt.tool_calls;
            facts.output_bytes = learnt.output_bytes;
        });
    }

    /// A failure of this attempt.
    pub(crate) fn fault(&self, verdict: Verdict) -> Fault {
        self.name(Fault::with_verdict(verdict, LAYER).with_status(self.status.as_u16()))
    }

    /// The same with the target's name.
    pub(crate) fn name(&self, fault: Fault) -> Fault {
        fault.with_target_if(self.config.name.clone())
    }

    /// An error that the target reports inside its answer. Of what it says only the code is repeated: a message may
    /// hold a prompt or a key.
    pub(crate) fn reported(&self, error: &ErrorBody<'_>) -> Fault {
        let verdict = error.verdict(None, &self.headers);
        if verdict.class() == Class::Refused {
            self.insight.learn(|facts| facts.finish = Some(Finish::ContentFilter));
        }
        let fault = self.fault(verdict);
        match error.code() {
            Some(code) => fault.with_message(format!("the target reported an error in its stream: {code}")),
            None => fault.with_message("the target reported an error in its stream"),
        }
    }

    /// A body that broke off. The error passes as it is where it says what it is; a failed status stays what it was,
    /// though its body is lost.
    pub(crate) fn cut(&self, error: &(dyn Error + 'static)) -> Result<Option<Verdict>, Fault> {
        let verdict = match verdict_of_head(self.status, &self.headers) {
            Some(verdict) => verdict,
            None if Verdict::of_error(error).class() != Class::Unknown => return Ok(None),
            None => Verdict::of(Class::Transient),
        };
        Err(self.fault(verdict).with_message("the body of the response was cut"))
    }
}

impl fmt::Debug for Attempt {
    /// Without headers: they may hold cookies.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("name", &self.config.name)
            .field("status", &self.status)
            .field("insight", &self.insight)
            .finish_non_exhaustive()
    }
}
