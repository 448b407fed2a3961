//! A streamed answer while it is put together: what the readers of all dialects share.

use failsoft_core::{Class, Facts, Fault, Finding, Hint, Severity, SoftKind, Usage, Verdict};
use stream_layer::{ArrayElements, Lines, SseEvents};

use http::HeaderMap;

use crate::{
    Offered, Provider,
    attempt::Attempt,
    form::Form,
    mould::{Adds, Counted, Known, Moulds, Plain},
    pieces::{CallPart, Pieces, Room},
    whole::fail,
};

/// At most so many choices are told apart.
const MAX_CHOICES: usize = 128;

/// How a stream ended, when it ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By an event that says so.
    Said,
    /// With its body.
    Body,
}

/// An event that was like one before it. What it adds is in the draft; what else the dialect makes of it is left to do.
#[derive(Debug)]
pub(crate) struct Again {
    pub(crate) adds: Adds,
    pub(crate) has_content: bool,
    /// Token counts came with it: those that [`Draft::counted`] gives.
    pub(crate) has_counts: bool,
}

/// Where events come from that may be like one before them.
pub(crate) trait Source<'a> {
    /// A line end in the bytes is none of the data's, but its end.
    const IS_ONE_LINE: bool;

    /// Takes the next event if it is known by its name and the bytes from its data on: how many of those are the data, and
    /// what to give.
    fn next_known<T>(&mut self, know: impl FnOnce(&'a [u8], &'a [u8]) -> Option<(usize, T)>) -> Option<T>;
}

impl<'a> Source<'a> for SseEvents<'a> {
    const IS_ONE_LINE: bool = true;

    #[inline]
    fn next_known<T>(&mut self, know: impl FnOnce(&'a [u8], &'a [u8]) -> Option<(usize, T)>) -> Option<T> {
        Self::next_known(self, know)
    }
}

impl<'a> Source<'a> for Lines<'a> {
    const IS_ONE_LINE: bool = true;

    #[inline]
    fn next_known<T>(&mut self, know: impl FnOnce(&'a [u8], &'a [u8]) -> Option<(usize, T)>) -> Option<T> {
        Self::next_known(self, |line| know(&[], line))
    }
}

impl<'a> Source<'a> for ArrayElements<'a> {
    const IS_ONE_LINE: bool = false;

    #[inline]
    fn next_known<T>(&mut self, know: impl FnOnce(&'a [u8], &'a [u8]) -> Option<(usize, T)>) -> Option<T> {
        Self::next_known(self, |element| know(&[], element))
    }
}

/// The name and the data of one event that was cut out already.
impl<'a> Source<'a> for (&'a [u8], &'a [u8]) {
    const IS_ONE_LINE: bool = false;

    fn next_known<T>(&mut self, know: impl FnOnce(&'a [u8], &'a [u8]) -> Option<(usize, T)>) -> Option<T> {
        let (name, data) = *self;
        know(name, data).filter(|(length, _)| *length == data.len()).map(|(_, known)| known)
    }
}

/// What came of an answer so far.
#[derive(Debug)]
pub(crate) struct Draft {
    form: &'static Form,
    choices: Vec<Pieces>,
    room: Room,
    usage: Usage,
    output_bytes: u64,
    /// Something came that is no piece of an answer in this dialect.
    has_others: bool,
    /// Something is to be told.
    has_news: bool,
    /// Of events that were read in full.
    moulds: Option<Box<Moulds>>,
}

impl Draft {
    /// Of an answer, text and tool calls are kept up to so many bytes.
    pub(crate) const fn new(form: &'static Form, room: usize) -> Self {
        let usage = Usage { input: None, cache_read: None, cache_write: None, output: None, reasoning: None };
        Self {
            form,
            choices: Vec::new(),
            room: Room::new(room),
            usage,
            output_bytes: 0,
            has_others: false,
            has_news: false,
            moulds: None,
        }
    }

    /// Adds to the choice of this index what `add` finds in an event: whether there was content, and how many bytes of
    /// it. `false` where there was none.
    pub(crate) fn add(
        &mut self,
        index: u64,
        add: impl FnOnce(&mut Pieces, &mut Room) -> (bool, u64),
    ) -> bool {
        let at = self.choices.iter().position(|choice| choice.index == index);
        let at = at.or_else(|| self.make_choice(index));
        let (mut unkept, mut no_room);
        let (choice, room) = match at.and_then(|at| self.choices.get_mut(at)) {
            Some(choice) => (choice, &mut self.room),
            // It is not kept, and the target gets on all the same.
            None => {
                (unkept, no_room) = (Pieces::default(), Room::new(0));
                (&mut unkept, &mut no_room)
            }
        };
        let (has_content, bytes) = add(choice, room);
        self.output_bytes = self.output_bytes.saturating_add(bytes);
        self.has_news |= bytes > 0;
        has_content
    }

    /// Where the choice is kept that begins now. The first one always is: it has the end that is judged.
    fn make_choice(&mut self, index: u64) -> Option<usize> {
        let is_full = self.choices.len() == MAX_CHOICES || !self.room.takes_entry();
        if is_full && !self.choices.is_empty() {
            return None;
        }
        self.choices.push(Pieces::new(index));
        Some(self.choices.len() - 1)
    }

    /// Takes over what was used so far, with every bucket that is known; whether that says something new.
    pub(crate) fn used(&mut self, usage: Usage) -> bool {
        let is_new = self.usage != usage;
        self.usage = usage;
        self.has_news |= is_new;
        is_new
    }

    /// Takes over what a gateway counted, where the dialect itself has not said what was used.
    pub(crate) fn metered(&mut self, usage: Usage) {
        if self.usage.is_unknown() {
            self.used(usage);
        }
    }

    /// What was told before, in another dialect, does not hold: whether that was told yet depends on how the bytes were cut.
    pub(crate) const fn tell_anew(&mut self) {
        self.has_news = true;
    }

    /// Tells what is new.
    pub(crate) fn tell(&mut self, attempt: &mut Attempt) {
        if !std::mem::take(&mut self.has_news) {
            return;
        }
        let (usage, bytes) = (self.usage, self.output_bytes);
        attempt.used(&usage);
        attempt.insight.learn(|facts| {
            facts.usage = usage;
            facts.output_bytes = bytes;
        });
    }

    /// Adds text that the caller can see.
    pub(crate) fn say(&mut self, index: u64, text: &str) -> bool {
        self.add(index, |choice, room| choice.say(text, room))
    }

    /// Adds a piece of a tool call, the one that was sent with the index `at`.
    pub(crate) fn call(&mut self, index: u64, at: u64, part: CallPart<'_>) -> bool {
        self.add(index, |choice, room| choice.call_at(at, part, room))
    }

    /// Keeps what an event looks like that did nothing but add a string: the next one may be like it.
    pub(crate) fn learn(&mut self, plain: &Plain<'_>) {
        self.moulds.get_or_insert_default().learn(plain);
    }

    /// Adds what the next event adds, where it is like one before it. `None` for an event that has to be read in full.
    #[inline]
    pub(crate) fn again<'a, S: Source<'a>>(&mut self, events: &mut S) -> Option<Again> {
        let mut moulds = self.moulds.take()?;
        let reader = &mut *moulds;
        let known = events.next_known(move |name, data| reader.known(name, data, S::IS_ONE_LINE));
        let again = known.map(|known| self.add_known(&known));
        self.moulds = Some(moulds);
        again
    }

    fn add_known(&mut self, known: &Known<'_>) -> Again {
        let Known { adds, text, has_counts } = *known;
        let has_content = match adds {
            Adds::Text { choice } => self.say(choice, text),
            Adds::Reasoning { choice } => self.add(choice, |choice, _| choice.think(text)),
            Adds::Arguments { choice, at } => {
                self.call(choice, at, CallPart { arguments: text, ..CallPart::default() })
            }
        };
        Again { adds, has_content, has_counts }
    }

    /// The token counts of the last event that was like one before it.
    pub(crate) fn counted(&self) -> Counted {
        self.moulds.as_ref().map(|moulds| moulds.counted()).unwrap_or_default()
    }

    /// Something came that is no piece of an answer in this dialect.
    pub(crate) const fn other(&mut self) {
        self.has_others = true;
    }

    /// Whether something else than an answer came.
    pub(crate) const fn has_others(&self) -> bool {
        self.has_others
    }

    /// Whether the stream is known to be no answer in this dialect.
    pub(crate) fn is_other(&self, attempt: &Attempt) -> bool {
        match attempt.offered.is_chat() {
            Some(false) => true,
            // In a dialect that is known, a chat is answered by what one is.
            Some(true) if attempt.provider != Provider::Auto => false,
            _ => self.has_others && self.is_blank(),
        }
    }

    /// Whether nothing came of any choice, not even that there is one.
    pub(crate) fn is_blank(&self) -> bool {
        self.choices.is_empty()
    }

    /// Whether a choice did not say why it stopped.
    pub(crate) fn is_open(&self) -> bool {
        self.choices.iter().any(|choice| choice.finish.is_none())
    }

    /// The first choice that did not say why it stopped, where another did: such a server says it of every one.
    pub(crate) fn cut_choice(&self) -> Option<u64> {
        let open = self.choices.iter().filter(|choice| choice.finish.is_none()).map(|choice| choice.index);
        let is_told = self.choices.iter().any(|choice| choice.finish.is_some());
        // Where not all of them were kept, a reason may be one of those that were not.
        open.min().filter(|_| is_told && !self.room.is_full())
    }

    /// The text of the first choice so far, where all of it was kept.
    pub(crate) fn text(&self) -> Option<&str> {
        let first = self.choices.iter().min_by_key(|choice| choice.index)?;
        Some(first.text()).filter(|text| !text.is_empty() && !self.room.is_full())
    }

    /// How many bytes of text, reasoning and tool calls came so far.
    pub(crate) const fn output_bytes(&self) -> u64 {
        self.output_bytes
    }

    /// What the whole answer means, in a dialect that ends with an event of its own; `cut` says that it is missing.
    pub(crate) fn end(
        &mut self,
        ended: Ended,
        cut: &'static str,
        attempt: &mut Attempt,
    ) -> Result<Option<Verdict>, Fault> {
        if self.is_other(attempt) {
            return Ok((ended == Ended::Said).then_some(Verdict::SUCCESS));
        }
        let mut facts = Facts::default();
        if self.is_blank() {
            let (kind, message) = if self.has_others {
                (SoftKind::Malformed, "no event of an answer")
            } else {
                (SoftKind::Empty, "no event at all")
            };
            let finding = Finding::new(kind, "no_answer", message);
            fail(&mut facts, Verdict::soft(kind).with_hint(Hint::Same), finding);
        } else if ended == Ended::Body {
            return Err(cut_short(attempt, cut));
        }
        self.conclude(facts, ended, attempt)
    }

    /// What the whole answer means, beside what is known of it already.
    pub(crate) fn conclude(
        &mut self,
        mut facts: Facts,
        ended: Ended,
        attempt: &mut Attempt,
    ) -> Result<Option<Verdict>, Fault> {
        facts.usage = self.usage;
        self.judge(&attempt.headers, &attempt.offered, &mut facts);
        settle(facts, ended, attempt)
    }

    /// Judges what came, as it would be as a whole.
    pub(crate) fn judge(&mut self, headers: &HeaderMap, offered: &Offered, facts: &mut Facts) {
        let mut choices = std::mem::take(&mut self.choices);
        choices.sort_by_key(|choice| choice.index);
        for (at, pieces) in choices.into_iter().enumerate() {
            let mut choice = pieces.into_choice(self.form, offered);
            if self.room.is_full() {
                // Not all of it was kept: only its end can be judged.
                choice.stopped_badly(facts);
                if at == 0 {
                    facts.finish = choice.finish;
                }
            } else {
                choice.judge(headers, offered, facts);
                choice.tell(at == 0, facts);
            }
        }
        if self.room.is_full() {
            let message = "an answer too long to be kept: text and tool calls were not looked at";
            let finding = Finding::new(SoftKind::Malformed, "too_long", message);
            facts.report.push(finding.with_severity(Severity::Warning));
        }
        facts.output_bytes = self.output_bytes;
    }
}

/// Hands on what is known of an answer that came to its end.
///
/// What the target itself reports as a failure is a fault. What is found wrong with an answer that came to its end is a
/// verdict: the answer passes as it is.
pub(crate) fn settle(facts: Facts, ended: Ended, attempt: &mut Attempt) -> Result<Option<Verdict>, Fault> {
    let verdict = facts.verdict.unwrap_or(Verdict::SUCCESS);
    let report = facts.report.clone();
    attempt.tell(facts);
    match verdict.class() {
        Class::Success | Class::Refused => Ok(Some(verdict)),
        Class::Soft(SoftKind::Empty | SoftKind::Malformed) if ended == Ended::Body => {
            let message = "the stream ended without an answer";
            Err(attempt.fault(verdict).with_message(message).with_report(report))
        }
        Class::Soft(_) => Ok(Some(verdict)),
        _ => {
            let message = "the target reported a failure as its finish reason";
            Err(attempt.fault(verdict).with_message(message).with_report(report))
        }
    }
}

/// The stream ended too early: the request was fine, so the same one may work.
pub(crate) fn cut_short(attempt: &Attempt, message: &'static str) -> Fault {
    let verdict = Verdict::soft(SoftKind::Truncated).with_hint(Hint::Same);
    attempt.fault(verdict).with_message(message)
}
