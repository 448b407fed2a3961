//! Google's Gemini: `generateContent`, whole, and `streamGenerateContent`, as server-sent events or as one JSON array.
//!
//! A stream has no terminator of its own but the array's `]`: an answer is whole where the body ends after every candidate
//! gave its finish reason. Some versions of the API give one with every chunk, so the first is not the end. Usage comes
//! with every chunk and is cumulative.

mod partial;
mod usage;

use failsoft_core::{Class, Facts, Fault, Finding, Finish, Hint, SoftKind, Usage, Verdict};
use http::HeaderMap;
use stream_layer::Seen;

use self::{partial::Partial, usage::Counts};
use crate::{
    Offered,
    attempt::Attempt,
    draft::{Again, Draft, Ended},
    error::Top,
    events::{Event, error_in, no_object},
    finish::finish_of,
    form::Form,
    lens,
    mould::{Adds, Plain, Used},
    pieces::{CallPart, Parts},
    whole::fail,
};

const FORM: Form = Form {
    choices: "/candidates",
    has_index: true,
    finish: "/finishReason",
    message: "/content",
    content: "/content/parts",
    calls: "/content/parts",
    keeps_index: true,
    function: "/functionCall",
    arguments: "/args",
    empty: Hint::Same,
};

/// What came of an answer so far.
#[derive(Debug)]
pub(crate) struct Stream {
    draft: Draft,
    counts: Counts,
    /// How many parts each candidate has so far.
    parts: Vec<(u64, u64)>,
    /// A call that is not whole yet.
    open: Option<OpenCall>,
    /// A filter's work, which decides whatever else there is.
    refused: Option<Verdict>,
    is_blocked: bool,
    /// The body ended in the middle of an event.
    is_cut: bool,
}

impl Stream {
    /// Text and tool calls are kept up to so many bytes.
    pub(crate) fn new(room: usize) -> Self {
        Self {
            draft: Draft::new(&FORM, room),
            counts: Counts::default(),
            parts: Vec::new(),
            open: None,
            refused: None,
            is_blocked: false,
            is_cut: false,
        }
    }

    pub(crate) fn draft(&mut self) -> &mut Draft {
        &mut self.draft
    }

    /// The body ended in the middle of something: a finish reason that came before that was not the last one.
    pub(crate) const fn cut(&mut self) {
        self.is_cut = true;
    }

    pub(crate) fn event(&mut self, event: Event<'_>, attempt: &mut Attempt, seen: &mut Seen) {
        // Gateways that make a stream of their own out of it end it as OpenAI does.
        if event.is_done() {
            match self.conclude(Ended::Said, attempt) {
                Ok(verdict) => seen.end = verdict,
                Err(fault) => seen.fault = Some(fault),
            }
            return;
        }
        let Some(chunk) = Chunk::read(event.data) else { return no_object(event, attempt, seen) };
        let only = self.chunk(&chunk, seen);
        let error = if event.name == "error" {
            Some(Top::read(event.data).and_then(|top| top.failure()).unwrap_or_default())
        } else if chunk.may_be_error() {
            error_in(event.data, attempt)
        } else {
            None
        };
        if let Some(error) = error {
            seen.fault = Some(attempt.reported(&error));
        } else if chunk.is_other() {
            self.draft.other();
            seen.content |= self.draft.is_other(attempt);
        } else if let (Some((adds, raw)), None) = (only, chunk.feedback) {
            let (name, data, unread) = (event.name, event.data, [chunk.id, None, None]);
            let usage = chunk.usage.and_then(|raw| Some(Used { raw, fields: usage::fields(raw)? }));
            self.draft.learn(&Plain { name, data, adds, raw, unread, usage });
        }
    }

    /// Takes what else is in an event that was like one before it.
    pub(crate) fn again(&mut self, again: &Again, seen: &mut Seen) {
        if again.has_counts {
            self.counts.set_counted(&self.draft.counted());
            seen.progress |= self.draft.used(self.counts.usage());
        }
        let (Adds::Text { choice } | Adds::Reasoning { choice } | Adds::Arguments { choice, .. }) =
            again.adds;
        if let Some((_, parts)) = self.parts.iter_mut().find(|(known, _)| *known == choice) {
            *parts += 1;
        }
    }

    /// Gives the string that is all that the chunk adds beside token counts, where that is so.
    fn chunk<'a>(&mut self, chunk: &Chunk<'a>, seen: &mut Seen) -> Option<(Adds, &'a str)> {
        if let Some(usage) = chunk.usage {
            self.counts.set(usage);
            seen.progress |= self.draft.used(self.counts.usage());
        }
        if chunk.is_blocked() {
            // The prompt was blocked: there is no answer, and there will be none.
            self.refused.get_or_insert(Verdict::of(Class::Refused));
            self.is_blocked = true;
        }
        let (mut position, mut only) = (0, None);
        lens::each(chunk.candidates.unwrap_or("[]"), |raw| {
            only = self.candidate(raw, position, seen);
            position += 1;
            true
        })?;
        only.filter(|_| position == 1)
    }

    fn candidate<'a>(&mut self, raw: &'a str, position: u64, seen: &mut Seen) -> Option<(Adds, &'a str)> {
        let [index, content, finish] = lens::fields(raw, ["index", "content", "finishReason"])?;
        let is_open = finish.is_none();
        let index = index.and_then(lens::count).unwrap_or(position);
        if finish.and_then(lens::string).is_some_and(|reason| reason.eq_ignore_ascii_case("recitation")) {
            // Too close to something that exists: another wording may pass.
            self.refused.get_or_insert(Verdict::of(Class::Refused).with_hint(Hint::Modify));
        }
        let finish = finish_of(finish);
        seen.progress |= finish.is_some();
        let before = self.parts.iter().find(|(known, _)| *known == index).map_or(0, |(_, parts)| *parts);
        let mut next = before;
        let (open, mut only) = (&mut self.open, None);
        let has_content = self.draft.add(index, |candidate, room| {
            if finish.is_some() {
                candidate.finish = finish;
            }
            let mut parts = Parts::new(candidate, room);
            let [list] = content.and_then(|raw| lens::fields(raw, ["parts"])).unwrap_or_default();
            lens::each(list.unwrap_or("[]"), |raw| {
                only = part(raw, (index, next), open, &mut parts);
                next += 1;
                true
            });
            parts.added()
        });
        seen.content |= has_content;
        let has_room = self.parts.len() < MAX_CANDIDATES;
        match self.parts.iter_mut().find(|(known, _)| *known == index) {
            Some((_, parts)) => *parts = next,
            None if has_room => self.parts.push((index, next)),
            None => {}
        }
        only.filter(|_| is_open && next == before + 1)
    }

    /// The answer is over: a call that was not ended is cut.
    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.draft.add(open.candidate, |candidate, room| {
                let mut parts = Parts::new(candidate, room);
                open.close(false, &mut parts);
                (false, 0)
            });
        }
    }

    fn tell_refused(&self, facts: &mut Facts) {
        facts.verdict = self.refused;
        facts.finish = self.is_blocked.then_some(Finish::ContentFilter);
    }

    /// What the whole answer means. The finish reasons are its end, so that whatever the body ends with, it was said.
    pub(crate) fn conclude(&mut self, ended: Ended, attempt: &mut Attempt) -> Result<Option<Verdict>, Fault> {
        self.close();
        if self.refused.is_some() {
            let mut facts = Facts::default();
            self.tell_refused(&mut facts);
            return self.draft.conclude(facts, ended, attempt);
        }
        // A closed array is no end where no reason was given.
        let is_whole = !self.is_cut && !self.draft.is_open() && !self.draft.is_blank();
        let ended = if is_whole { Ended::Said } else { Ended::Body };
        self.draft.end(ended, "the stream ended without a finish reason", attempt)
    }
}

/// At most so many candidates are told apart.
const MAX_CANDIDATES: usize = 128;

/// The fields of a piece of an answer, or of a whole one.
struct Chunk<'a> {
    candidates: Option<&'a str>,
    feedback: Option<&'a str>,
    usage: Option<&'a str>,
    error: Option<&'a str>,
    id: Option<&'a str>,
    response: bool,
}

impl<'a> Chunk<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let names = ["candidates", "promptFeedback", "usageMetadata", "error", "responseId", "modelVersion"];
        let [candidates, feedback, usage, error, id, version] = lens::fields(text, names)?;
        Some(Self { candidates, feedback, usage, error, id, response: id.is_some() || version.is_some() })
    }

    fn may_be_error(&self) -> bool {
        self.error.is_some_and(lens::tells) || self.is_other()
    }

    /// Whether it says nothing that a piece of an answer says.
    fn is_other(&self) -> bool {
        !self.response && self.candidates.is_none() && self.feedback.is_none() && self.usage.is_none()
    }

    fn is_blocked(&self) -> bool {
        let [reason] = self.feedback.and_then(|raw| lens::fields(raw, ["blockReason"])).unwrap_or_default();
        let reason = lens::some_string(reason);
        // The name that stands for none.
        reason.is_some_and(|reason| !reason.ends_with("UNSPECIFIED"))
    }
}

/// A call whose arguments come piece by piece.
#[derive(Debug)]
struct OpenCall {
    candidate: u64,
    part: u64,
    arguments: Partial,
}

impl OpenCall {
    fn close(&self, is_whole: bool, parts: &mut Parts<'_>) {
        parts.keep_arguments(self.part, &self.arguments.written(is_whole));
    }
}

/// Adds one part of a candidate's content. `place` is the candidate's index and the part's own. Gives the string that is all
/// of it, where that is so.
fn part<'a>(
    raw: &'a str,
    place: (u64, u64),
    open: &mut Option<OpenCall>,
    parts: &mut Parts<'_>,
) -> Option<(Adds, &'a str)> {
    let names = [
        "text",
        "thought",
        "functionCall",
        "inlineData",
        "fileData",
        "executableCode",
        "codeExecutionResult",
    ];
    let [text, thought, function, shown @ ..] = lens::fields(raw, names)?;
    let is_thought = thought == Some("true");
    if let Some(text) = text.and_then(lens::string) {
        if is_thought { parts.think(&text) } else { parts.say(&text) }
    }
    if let Some(raw) = function {
        call(raw, place, open, parts);
    }
    if shown.into_iter().flatten().any(lens::truthy) {
        parts.show();
    }
    let (choice, _) = place;
    let adds = if is_thought { Adds::Reasoning { choice } } else { Adds::Text { choice } };
    let is_bare = function.is_none() && shown == [None; 4];
    text.filter(|raw| is_bare && raw.starts_with('"')).map(|raw| (adds, raw))
}

/// Adds a function call, or a piece of one.
fn call(raw: &str, place: (u64, u64), open: &mut Option<OpenCall>, parts: &mut Parts<'_>) {
    let names = ["id", "name", "args", "partialArgs", "willContinue"];
    let Some([id, name, args, pieces, goes_on]) = lens::fields(raw, names) else { return };
    let goes_on = goes_on == Some("true");
    let (id, name) = (lens::some_string(id), lens::some_string(name));
    if open.is_none() || name.is_some() {
        // Another begins: one that was not ended stays cut.
        if let Some(open) = open.take().filter(|open| open.candidate == place.0) {
            open.close(false, parts);
        }
        let name = name.unwrap_or_default();
        if !goes_on && pieces.is_none() {
            // No arguments at all are left out by the format: that is an empty object, and nothing that was lost.
            let arguments = args.unwrap_or("{}");
            parts.call(place.1, CallPart { id: id.as_deref(), name: &name, arguments, is_custom: false });
            return;
        }
        parts.call(place.1, CallPart { id: id.as_deref(), name: &name, ..CallPart::default() });
        *open = Some(OpenCall { candidate: place.0, part: place.1, arguments: Partial::default() });
    }
    let Some(running) = open else { return };
    if let Some(pieces) = pieces {
        parts.wrote(running.arguments.add(pieces));
    }
    if !goes_on {
        running.close(true, parts);
        *open = None;
    }
}

/// The tokens that a body says were used.
pub(crate) fn usage(top: &Top<'_>) -> Usage {
    let mut counts = Counts::default();
    if let Some(usage) = Chunk::read(top.text()).and_then(|chunk| chunk.usage) {
        counts.set(usage);
    }
    counts.usage()
}

/// Judges an object that is no error.
pub(crate) fn answer(top: &Top<'_>, headers: &HeaderMap, offered: &Offered, facts: &mut Facts) {
    let Some(chunk) = Chunk::read(top.text()) else { return };
    if chunk.is_other() {
        if let Some(error) = top.instead_of_answer() {
            error.tell(None, headers, facts);
        } else if offered.is_chat() == Some(true) {
            no_candidate(facts, true);
        } else {
            // Vectors, a count of tokens, a list of models.
            facts.verdict = Some(Verdict::SUCCESS);
        }
        return;
    }
    judge([chunk], headers, offered, facts);
}

/// Judges a stream that came as a whole array. `None` where the text is no array of pieces of an answer.
pub(crate) fn array(text: &str, headers: &HeaderMap, offered: &Offered, facts: &mut Facts) -> Option<()> {
    let mut chunks = Vec::new();
    let (mut failed, mut has_others) = (None, false);
    lens::each(text, |raw| {
        match Chunk::read(raw) {
            Some(chunk) if chunk.may_be_error() => {
                failed = Top::read(raw).and_then(|top| top.error());
                has_others = true;
            }
            Some(chunk) => chunks.push(chunk),
            None => has_others = true,
        }
        failed.is_none()
    })?;
    if failed.is_none() && (has_others || chunks.is_empty()) {
        return None;
    }
    let mut found = Facts::default();
    judge(chunks, headers, offered, &mut found);
    if let Some(error) = failed {
        error.tell(None, headers, &mut found);
    } else if found.finish.is_none() && found.verdict.is_some_and(|verdict| verdict.is_success()) {
        let finding = Finding::new(SoftKind::Truncated, "no_finish_reason", "no finish reason");
        found.verdict = None;
        fail(
            &mut found,
            Verdict::soft(SoftKind::Truncated).with_hint(Hint::Same),
            finding.at("/candidates/0"),
        );
    }
    *facts = found;
    Some(())
}

fn judge<'a>(
    chunks: impl IntoIterator<Item = Chunk<'a>>,
    headers: &HeaderMap,
    offered: &Offered,
    facts: &mut Facts,
) {
    let (mut stream, mut seen) = (Stream::new(usize::MAX), Seen::default());
    for chunk in chunks {
        stream.chunk(&chunk, &mut seen);
    }
    stream.close();
    facts.usage = stream.counts.usage();
    stream.tell_refused(facts);
    if stream.draft.is_blank() {
        no_candidate(facts, false);
    } else {
        stream.draft.judge(headers, offered, facts);
    }
    facts.verdict.get_or_insert(Verdict::SUCCESS);
}

/// An answer that is none; where its prompt was blocked, that is known already.
fn no_candidate(facts: &mut Facts, is_other: bool) {
    if facts.verdict.is_some() {
        return;
    }
    let (kind, code, message) = if is_other {
        (SoftKind::Malformed, "no_candidates", "no `candidates` in the body")
    } else {
        (SoftKind::Empty, "no_candidate", "there is no candidate")
    };
    fail(
        facts,
        Verdict::soft(kind).with_hint(Hint::Same),
        Finding::new(kind, code, message).at("/candidates"),
    );
}

#[cfg(test)]
mod tests;
