//! The bad day as a table: when each phase begins and what each provider suffers in it.
//!
//! Everything follows from the seed: the order and the length of the phases, which of the two spare providers is the
//! weaker one, and what the n-th request to a provider meets. The providers act the table out on their sockets; the
//! driver reads from it whether a call could have been answered. Nobody else sees it.

use crate::job::{Reader, Step};
use fastrand::Rng;
use std::time::Duration;

/// A quarter of an hour, in the day's time.
pub(crate) const DAY: Duration = Duration::from_secs(900);
pub(crate) const PROVIDERS: [&str; 3] = ["alder", "birch", "cedar"];

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Script {
    seed: u64,
    pub(crate) phases: Vec<Phase>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) start: Duration,
    pub(crate) end: Duration,
    /// What each provider suffers, in the order of [`PROVIDERS`].
    pub(crate) weather: [Weather; 3],
}

/// What one provider suffers through one phase. Shares are of its requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Weather {
    Fine,
    /// Turns of two kinds: every request gets 429 with the time that is left, then all are served.
    RateLimited {
        limited: Duration,
        open: Duration,
    },
    /// 500, 502, 503 and 529, some with an HTML page.
    ServerErrors(f64),
    /// Nobody listens, and what was connected is reset.
    Refused,
    /// Reset after the request was read, or cut in the middle of the body.
    Cut(f64),
    /// 200 with something that is no answer, or no right one.
    WrongAnswers(f64),
    /// Answers that take longer than any client here waits.
    Slow(f64),
    /// Streams begin and do not end, or never begin. Whole answers are fine.
    Streams(f64),
    /// 429 `insufficient_quota`: nothing works until somebody pays.
    Quota,
}

/// What one request meets instead of a right answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    RateLimited { left: Duration },
    Quota,
    ServerError { status: u16, html: bool },
    Reset,
    CutBody,
    Wrong(Wrong),
    Slow { by: Duration, after_head: bool },
    Stream(Break),
}

/// The ways in which a stream is no whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Break {
    /// A head and a role at once, and then nothing for longer than anybody waits.
    SlowFirst,
    /// Keepalives for ever.
    Drip,
    ErrorBefore,
    Stall,
    Cut,
    ErrorAfter,
    /// The body ends as if all were well, in the middle of the answer: no finish reason, no `[DONE]`.
    NoEnd,
}

impl Break {
    /// What a person has begun to read nobody can answer again, so there late breaks are the rarer ones.
    const LATE_SHARE: f64 = 0.15;

    /// Whether it shows only once a part of the answer has been handed on to whoever watches.
    #[cfg(test)]
    fn is_late(self) -> bool {
        matches!(self, Self::Stall | Self::Cut | Self::ErrorAfter | Self::NoEnd)
    }

    fn draw(reader: Reader, rng: &mut Rng) -> Self {
        use Break::*;
        let late_share = if reader == Reader::Person { Self::LATE_SHARE } else { 4.0 / 7.0 };
        if rng.f64() < late_share {
            [Stall, Cut, ErrorAfter, NoEnd][rng.usize(..4)]
        } else {
            [SlowFirst, Drip, ErrorBefore][rng.usize(..3)]
        }
    }
}

/// The ways in which a 200 is no right answer. Each one shows in the answer itself, to whoever looks: nothing here is
/// false but plausible, which no check of one answer could see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Wrong {
    CutJson,
    NotACompletion,
    ErrorInside,
    NoChoices,
    HtmlPage,
    Null,
    Empty,
    CutAtLength,
    MalformedPlan,
    MissingField,
    IdlePlan,
    ProseForCall,
    UnknownTool,
    CutArguments,
}

impl Wrong {
    /// What can go wrong with any answer, and what only with this step's. The latter come up more often, as in life.
    fn of(step: Step) -> &'static [Self] {
        use Wrong::*;
        match step {
            Step::Plan => &[
                CutJson,
                NotACompletion,
                ErrorInside,
                NoChoices,
                HtmlPage,
                Null,
                Empty,
                CutAtLength,
                CutAtLength,
                MalformedPlan,
                MalformedPlan,
                MissingField,
                MissingField,
                IdlePlan,
            ],
            Step::Tool => &[
                CutJson,
                NotACompletion,
                ErrorInside,
                NoChoices,
                HtmlPage,
                Null,
                Empty,
                CutAtLength,
                ProseForCall,
                ProseForCall,
                UnknownTool,
                UnknownTool,
                CutArguments,
                CutArguments,
            ],
            // Streamed to a person: what shows before the first word, but for an answer cut at its length. One that is
            // too short and ends well nobody could take back.
            Step::Summary => &[
                NotACompletion,
                NotACompletion,
                ErrorInside,
                ErrorInside,
                NoChoices,
                NoChoices,
                HtmlPage,
                HtmlPage,
                Null,
                Null,
                Empty,
                Empty,
                Empty,
                Empty,
                CutAtLength,
            ],
        }
    }
}

impl Weather {
    /// Whether a right answer could come out of this provider now, that long after the phase began.
    fn able(self, into: Duration) -> bool {
        match self {
            Self::Fine => true,
            Self::RateLimited { .. } => self.limited_for(into).is_none(),
            Self::ServerErrors(share)
            | Self::Cut(share)
            | Self::WrongAnswers(share)
            | Self::Slow(share)
            | Self::Streams(share) => share < 1.0,
            Self::Refused | Self::Quota => false,
        }
    }

    fn limited_for(self, into: Duration) -> Option<Duration> {
        let Self::RateLimited { limited, open } = self else { return None };
        let turn = (limited + open).as_secs_f64();
        let left = limited.as_secs_f64() - into.as_secs_f64() % turn;
        (left > 0.0).then(|| Duration::from_secs_f64(left))
    }

    fn fault(self, into: Duration, step: Step, rng: &mut Rng) -> Option<Fault> {
        match self {
            Self::Fine => None,
            Self::RateLimited { .. } => self.limited_for(into).map(|left| Fault::RateLimited { left }),
            Self::ServerErrors(share) => (rng.f64() < share).then(|| Fault::ServerError {
                status: [500, 502, 503, 529][rng.usize(..4)],
                html: rng.f64() < 0.3,
            }),
            // A request that was already read when the door closed.
            Self::Refused => Some(Fault::Reset),
            Self::Cut(share) => (rng.f64() < share).then(|| {
                let late = if step.reader() == Reader::Person { Break::LATE_SHARE } else { 0.5 };
                if rng.f64() < late { Fault::CutBody } else { Fault::Reset }
            }),
            Self::WrongAnswers(share) => (rng.f64() < share).then(|| {
                let kinds = Wrong::of(step);
                Fault::Wrong(kinds[rng.usize(..kinds.len())])
            }),
            Self::Slow(share) => (rng.f64() < share).then(|| Fault::Slow {
                by: Duration::from_secs_f64(45.0 + 45.0 * rng.f64()),
                after_head: rng.bool(),
            }),
            Self::Streams(share) => {
                let reader = step.reader();
                let breaks = reader != Reader::Program && rng.f64() < share;
                breaks.then(|| Fault::Stream(Break::draw(reader, rng)))
            }
            Self::Quota => Some(Fault::Quota),
        }
    }

    /// For the report.
    pub(crate) fn label(self) -> String {
        let percent = |what: &str, share: f64| format!("{:.0} % {what}", share * 100.0);
        match self {
            Self::Fine => "fine".into(),
            Self::RateLimited { limited, open } => {
                format!("429: {} s of {}", limited.as_secs(), (limited + open).as_secs())
            }
            Self::ServerErrors(share) => percent("5xx", share),
            Self::Refused => "refused".into(),
            Self::Cut(share) => percent("cut off", share),
            Self::WrongAnswers(share) => percent("wrong 200s", share),
            Self::Slow(share) => percent("too slow", share),
            Self::Streams(share) => percent("broken", share),
            Self::Quota => "quota gone".into(),
        }
    }
}

impl Script {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut troubles = troubles();
        rng.shuffle(&mut troubles);
        let calm = Draft { name: "calm", seconds: 80, weather: [Weather::Fine; 3] };
        let recovery = Draft { name: "recovery", seconds: 130, weather: [Weather::Fine; 3] };
        let drafts: Vec<Draft> =
            [calm].into_iter().chain(troubles.into_iter().flatten()).chain([recovery]).collect();

        let lengths: Vec<f64> =
            drafts.iter().map(|draft| draft.seconds as f64 * (0.8 + 0.4 * rng.f64())).collect();
        let scale = DAY.as_secs_f64() / lengths.iter().sum::<f64>();
        let mut start = Duration::ZERO;
        let phases = drafts
            .into_iter()
            .zip(lengths)
            .map(|(draft, length)| {
                let end = start + Duration::from_secs_f64(length * scale);
                let [first, mut second, mut third] = draft.weather;
                if rng.bool() {
                    std::mem::swap(&mut second, &mut third);
                }
                let phase = Phase { name: draft.name, start, end, weather: [first, second, third] };
                start = end;
                phase
            })
            .collect();
        Self { seed, phases }
    }

    /// A day of one phase.
    #[cfg(test)]
    pub(crate) fn steady(weather: [Weather; 3]) -> Self {
        Self { seed: 1, phases: vec![Phase { name: "steady", start: Duration::ZERO, end: DAY, weather }] }
    }

    /// A day whose first provider does not listen in the middle of it.
    #[cfg(test)]
    pub(crate) fn closed_between(start: Duration, end: Duration) -> Self {
        let fine = [Weather::Fine; 3];
        let phase = |name, start, end, weather| Phase { name, start, end, weather };
        let phases = vec![
            phase("before", Duration::ZERO, start, fine),
            phase("closed", start, end, [Weather::Refused, Weather::Fine, Weather::Fine]),
            phase("after", end, DAY, fine),
        ];
        Self { seed: 1, phases }
    }

    /// The phase of this time; the last one goes on for ever.
    pub(crate) fn phase(&self, time: Duration) -> &Phase {
        let index = self.phases.partition_point(|phase| phase.end <= time);
        &self.phases[index.min(self.phases.len() - 1)]
    }

    /// Whether some provider could answer a call made at this time rightly.
    pub(crate) fn answerable(&self, time: Duration) -> bool {
        let phase = self.phase(time);
        phase.weather.iter().any(|weather| weather.able(time.saturating_sub(phase.start)))
    }

    /// What the `ordinal`-th request to this provider meets, if it is read at this time.
    pub(crate) fn fault(&self, provider: usize, time: Duration, ordinal: u64, step: Step) -> Option<Fault> {
        let phase = self.phase(time);
        let into = time.saturating_sub(phase.start);
        phase.weather[provider].fault(into, step, &mut self.dice(provider, ordinal))
    }

    /// How long a provider takes for an answer when all is well: 0.6 to 2.6 s, the spares a little longer.
    pub(crate) fn latency(&self, provider: usize, ordinal: u64) -> Duration {
        let mut rng = self.dice(provider, ordinal);
        // Not the numbers that decided on the fault.
        let luck = rng.fork().f64();
        Duration::from_secs_f64((0.6 + 2.0 * luck * luck) * [1.0, 1.2, 1.4][provider % 3])
    }

    /// Whether this provider listens at this time, and until when that stays so.
    pub(crate) fn door(&self, provider: usize, time: Duration) -> (bool, Duration) {
        let closed = |phase: &Phase| phase.weather[provider] == Weather::Refused;
        let now = closed(self.phase(time));
        let change = self.phases.iter().find(|phase| phase.start > time && closed(phase) != now);
        (!now, change.map_or(Duration::MAX, |phase| phase.start))
    }

    /// Numbers of their own for each request. Neighbouring seeds give related first numbers, so those are only seeds again.
    fn dice(&self, provider: usize, ordinal: u64) -> Rng {
        let mixed = |seed| Rng::with_seed(seed).u64(..);
        Rng::with_seed(mixed(mixed(mixed(self.seed) ^ provider as u64) ^ ordinal))
    }
}

/// Nobody answers: what counts is how soon the calls work again after it.
const ALL_DOWN: &str = "all down";

struct Draft {
    name: &'static str,
    seconds: u32,
    weather: [Weather; 3],
}

/// What happens between the calm and the recovery, in an order that the seed decides. The first provider, the one that
/// a client without a spare lives on, is the victim; the spares have smaller troubles of their own.
fn troubles() -> Vec<Vec<Draft>> {
    use Weather::*;
    let limited = |limited, open| RateLimited {
        limited: Duration::from_secs(limited),
        open: Duration::from_secs(open),
    };
    let draft = |name, seconds, weather| Draft { name, seconds, weather };
    vec![
        vec![draft("rate limits", 100, [limited(12, 4), limited(3, 12), ServerErrors(0.02)])],
        vec![draft("server errors", 100, [ServerErrors(0.4), ServerErrors(0.1), Fine])],
        vec![
            draft("refused", 70, [Refused, Cut(0.1), Fine]),
            draft("cut off", 40, [Cut(0.6), Cut(0.05), Fine]),
        ],
        vec![draft("wrong answers", 120, [WrongAnswers(0.45), WrongAnswers(0.15), WrongAnswers(0.05)])],
        vec![draft("slow", 100, [Slow(0.7), Slow(0.03), Fine])],
        vec![draft("streams", 100, [Streams(0.8), Streams(0.03), Fine])],
        vec![draft("quota", 100, [Quota, ServerErrors(0.2), limited(4, 16)])],
        vec![draft("two down", 60, [ServerErrors(1.0), Refused, WrongAnswers(0.03)])],
        vec![draft(ALL_DOWN, 40, [ServerErrors(1.0), Refused, ServerErrors(1.0)])],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_seed_is_a_day() {
        assert_eq!(Script::new(7), Script::new(7));
        assert_ne!(Script::new(7), Script::new(8));
        let met = |script: &Script| -> Vec<_> {
            (0..3000).map(|n| script.fault(0, seconds(n * 3 / 10), n, Step::Tool)).collect()
        };
        assert_eq!(met(&Script::new(7)), met(&Script::new(7)));
        assert_ne!(met(&Script::new(7)), met(&Script::new(8)));
    }

    #[test]
    fn the_phases_fill_the_day_without_gaps() {
        for seed in 0..50 {
            let script = Script::new(seed);
            assert_eq!(script.phases[0].start, Duration::ZERO);
            for pair in script.phases.windows(2) {
                assert_eq!(pair[0].end, pair[1].start);
            }
            let last = script.phases.last().unwrap();
            assert!((last.end.as_secs_f64() - DAY.as_secs_f64()).abs() < 1e-6);
            assert_eq!((script.phases[0].name, last.name), ("calm", "recovery"));
            assert_eq!(script.phase(DAY * 2), last);
        }
    }

    #[test]
    fn some_provider_can_answer_at_nearly_all_times_but_when_all_are_down() {
        for seed in 0..50 {
            let script = Script::new(seed);
            let times = (0..9000).map(|tenth| Duration::from_millis(tenth * 100));
            let (down, other): (Vec<_>, Vec<_>) =
                times.partition(|time| script.phase(*time).name == ALL_DOWN);
            assert!(down.len() > 200 && !down.into_iter().any(|time| script.answerable(time)), "seed {seed}");
            let dark = other.into_iter().filter(|time| !script.answerable(*time)).count();
            assert!(dark < 90, "seed {seed}: {dark} tenths of a second without anyone");
        }
    }

    #[test]
    fn the_first_provider_has_a_bad_day() {
        for seed in 0..50 {
            let script = Script::new(seed);
            let failing = (0..9000u64)
                .filter(|n| script.fault(0, Duration::from_millis(n * 100), *n, Step::Tool).is_some())
                .count();
            assert!((3600..6300).contains(&failing), "seed {seed}: {failing} of 9000");
        }
    }

    #[test]
    fn every_share_is_what_the_table_says() {
        let script = Script::new(3);
        let phase = script.phases.iter().find(|phase| phase.name == "server errors").unwrap();
        let middle = phase.start + (phase.end - phase.start) / 2;
        let failing = (0..10_000).filter(|n| script.fault(0, middle, *n, Step::Plan).is_some()).count();
        assert!((3800..4200).contains(&failing), "{failing} of 10000");
    }

    #[test]
    fn a_rate_limit_says_how_long_it_still_lasts() {
        let weather = Weather::RateLimited { limited: seconds(12), open: seconds(4) };
        assert_eq!(weather.limited_for(seconds(0)), Some(seconds(12)));
        assert_eq!(weather.limited_for(seconds(10)), Some(seconds(2)));
        assert_eq!(weather.limited_for(seconds(13)), None);
        assert_eq!(weather.limited_for(seconds(16)), Some(seconds(12)));
        assert!(!weather.able(seconds(10)) && weather.able(seconds(13)));
    }

    #[test]
    fn the_door_closes_for_the_refused_phase_only() {
        let script = Script::new(5);
        let refused = script.phases.iter().find(|phase| phase.name == "refused").unwrap();
        assert_eq!(script.door(0, Duration::ZERO), (true, refused.start));
        assert_eq!(script.door(0, refused.start), (false, refused.end));
        assert_eq!(script.door(0, refused.end), (true, Duration::MAX));
    }

    #[test]
    fn streams_break_and_whole_answers_do_not() {
        let script = Script::steady([Weather::Streams(1.0), Weather::Fine, Weather::Fine]);
        let met = |step| -> Vec<_> { (0..500).map(|n| script.fault(0, seconds(1), n, step)).collect() };
        assert!(met(Step::Plan).iter().all(Option::is_none));
        let late = |step| {
            let is_late =
                |fault: &&Option<Fault>| matches!(fault, Some(Fault::Stream(kind)) if kind.is_late());
            met(step).iter().filter(is_late).count()
        };
        assert!((240..330).contains(&late(Step::Tool)), "{}", late(Step::Tool));
        assert!((50..105).contains(&late(Step::Summary)), "{}", late(Step::Summary));
    }

    #[test]
    fn each_step_has_its_own_ways_to_be_wrong() {
        assert!(!Wrong::of(Step::Summary).contains(&Wrong::UnknownTool));
        assert!(!Wrong::of(Step::Tool).contains(&Wrong::MissingField));
        assert!(!Wrong::of(Step::Plan).contains(&Wrong::ProseForCall));
    }
}
