//! The picture of the day: what became of the calls of both runs over time, on the same scale, above what the circuits
//! did and what each provider suffered. An SVG without scripts; its colours are classes that the page gives.

use crate::agents::{Ending, Record};
use crate::client::{CircuitState, Transition};
use crate::clock::minutes;
use crate::ride::Ride;
use crate::script::{DAY, PROVIDERS, Phase, Weather};
use std::fmt::{Display, Write as _};
use std::time::Duration;

const LEFT: f64 = 78.0;
const PLOT: f64 = 1000.0;
const WIDTH: f64 = LEFT + PLOT + 20.0;
const BARS: f64 = 150.0;
const LANE: f64 = 20.0;
/// Ten seconds of the day in one bar.
const BUCKETS: usize = 90;

pub(crate) fn chart(ride: &Ride) -> String {
    let bare = buckets(&ride.bare.records);
    let stack = buckets(&ride.stack.records);
    let highest = bare.iter().chain(&stack).map(Bucket::calls).max().unwrap_or(0).max(1);
    let mut svg = Svg::default();

    let phases_at = 22.0;
    let bare_at = phases_at + 14.0;
    let stack_at = bare_at + BARS + 26.0;
    let circuits_at = stack_at + BARS + 44.0;
    let weather_at = circuits_at + 3.0 * LANE + 40.0;
    let bottom = weather_at + 3.0 * LANE + 6.0;

    svg.phases(&ride.script.phases, phases_at, bottom);
    svg.bars("bare", &bare, highest, bare_at);
    svg.bars("stack", &stack, highest, stack_at);
    svg.heading("circuits of the stack", circuits_at - 8.0);
    for (index, provider) in PROVIDERS.iter().enumerate() {
        svg.circuit(provider, &ride.stack.transitions, circuits_at + LANE * index as f64);
    }
    svg.transition_marks(&ride.stack.transitions, stack_at + BARS);
    svg.heading("what each provider suffered", weather_at - 8.0);
    for (index, provider) in PROVIDERS.iter().enumerate() {
        svg.weather(provider, &ride.script.phases, index, weather_at + LANE * index as f64);
    }
    svg.hours(bottom);
    svg.finish(bottom + 22.0)
}

/// The calls that were made in one stretch of the day.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Bucket {
    right: usize,
    failed: usize,
    wrong: usize,
}

impl Bucket {
    fn calls(&self) -> usize {
        self.right + self.failed + self.wrong
    }
}

fn buckets(records: &[Record]) -> Vec<Bucket> {
    let mut buckets = vec![Bucket::default(); BUCKETS];
    for record in records {
        let index = (record.at.as_secs_f64() / DAY.as_secs_f64() * BUCKETS as f64) as usize;
        let bucket = &mut buckets[index.min(BUCKETS - 1)];
        match record.ending {
            Ending::Right => bucket.right += 1,
            Ending::Wrong(_) => bucket.wrong += 1,
            Ending::Failed(_) => bucket.failed += 1,
            Ending::HungUp | Ending::Denied => {}
        }
    }
    buckets
}

/// The stretches of the day that one circuit spent in each state; it begins closed.
fn stretches(provider: &str, transitions: &[Transition]) -> Vec<(Duration, Duration, CircuitState)> {
    let mut stretches = Vec::new();
    let (mut since, mut state) = (Duration::ZERO, CircuitState::Closed);
    for transition in transitions.iter().filter(|transition| transition.circuit == provider) {
        let at = transition.at.min(DAY);
        stretches.push((since, at, state));
        (since, state) = (at, transition.to);
    }
    stretches.push((since, DAY, state));
    stretches
}

fn x(time: Duration) -> f64 {
    LEFT + PLOT * (time.as_secs_f64() / DAY.as_secs_f64()).min(1.0)
}

#[derive(Default)]
struct Svg(String);

impl Svg {
    fn rect(&mut self, class: &str, [x, y, width, height]: [f64; 4], tip: &str) {
        let _infallible = writeln!(
            self.0,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"><title>{}</title></rect>"#,
            escape(tip)
        );
    }

    fn text(&mut self, class: &str, x: f64, y: f64, text: impl Display) {
        let text = escape(&text.to_string());
        let _infallible = writeln!(self.0, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{text}</text>"#);
    }

    fn line(&mut self, class: &str, from: [f64; 2], to: [f64; 2]) {
        let ([x1, y1], [x2, y2]) = (from, to);
        let _infallible = writeln!(
            self.0,
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        );
    }

    fn heading(&mut self, text: &str, y: f64) {
        self.text("heading", LEFT, y, text);
    }

    /// Every second phase is shaded, from its name down to the axis.
    fn phases(&mut self, phases: &[Phase], top: f64, bottom: f64) {
        for (index, phase) in phases.iter().enumerate() {
            let (start, end) = (x(phase.start), x(phase.end));
            let class = if index % 2 == 0 { "phase even" } else { "phase odd" };
            let tip = format!("{}, {} to {}", phase.name, minutes(phase.start), minutes(phase.end));
            self.rect(class, [start, top - 18.0, end - start, bottom - top + 18.0], &tip);
            self.text("name", f64::midpoint(start, end), top - 4.0, phase.name);
        }
    }

    fn bars(&mut self, run: &str, buckets: &[Bucket], highest: usize, top: f64) {
        let base = top + BARS;
        self.text("run", LEFT - 10.0, top + 14.0, run);
        self.text("tick", LEFT - 10.0, top + 30.0, format_args!("{highest} calls"));
        self.text("tick", LEFT - 10.0, top + 43.0, "in 10 s");
        self.line("axis", [LEFT, base], [LEFT + PLOT, base]);
        let width = PLOT / BUCKETS as f64;
        for (index, bucket) in buckets.iter().enumerate() {
            let start = DAY.mul_f64(index as f64 / BUCKETS as f64);
            let tip = format!(
                "{run}, {}: {} right, {} failed, {} wrong",
                minutes(start),
                bucket.right,
                bucket.failed,
                bucket.wrong
            );
            let mut y = base;
            for (class, count) in
                [("right", bucket.right), ("failed", bucket.failed), ("wrong", bucket.wrong)]
            {
                if count > 0 {
                    let height = (BARS - 8.0) * count as f64 / highest as f64;
                    y -= height;
                    self.rect(class, [x(start) + 0.75, y, width - 1.5, height], &tip);
                }
            }
        }
    }

    fn circuit(&mut self, provider: &str, transitions: &[Transition], top: f64) {
        self.text("lane", LEFT - 10.0, top + 13.0, provider);
        for (from, to, state) in stretches(provider, transitions) {
            let class = match state {
                CircuitState::Closed => "closed",
                CircuitState::HalfOpen => "half-open",
                CircuitState::Open => "open",
            };
            let tip = format!("{provider} {}, {} to {}", state.name(), minutes(from), minutes(to));
            // A probe may be over in an instant; it is shown all the same.
            let width = (x(to) - x(from)).max(1.2);
            self.rect(class, [x(from), top + 2.0, width, LANE - 4.0], &tip);
        }
    }

    /// A small mark under the stack's bars wherever a circuit opened.
    fn transition_marks(&mut self, transitions: &[Transition], y: f64) {
        for transition in transitions.iter().filter(|transition| transition.to == CircuitState::Open) {
            let at = x(transition.at);
            let tip =
                format!("{}: {} opened. {}", minutes(transition.at), transition.circuit, transition.why);
            let _infallible = writeln!(
                self.0,
                r#"<path class="mark" d="M{:.1} {:.1} l4.5 8 h-9 z"><title>{}</title></path>"#,
                at,
                y + 3.0,
                escape(&tip)
            );
        }
    }

    fn weather(&mut self, provider: &str, phases: &[Phase], index: usize, top: f64) {
        self.text("lane", LEFT - 10.0, top + 13.0, provider);
        for phase in phases {
            let weather = phase.weather[index];
            let (start, end) = (x(phase.start), x(phase.end));
            let tip = format!("{provider}, {}: {}", phase.name, weather.label());
            let class = match severity(weather) {
                0 => "fine",
                1 => "light",
                _ => "heavy",
            };
            self.rect(class, [start + 1.0, top + 2.0, end - start - 2.0, LANE - 4.0], &tip);
            if weather != Weather::Fine && end - start > weather.label().len() as f64 * 6.2 {
                self.text("cell", f64::midpoint(start, end), top + 13.5, weather.label());
            }
        }
    }

    fn hours(&mut self, y: f64) {
        self.line("axis", [LEFT, y], [LEFT + PLOT, y]);
        for minute in 0..=DAY.as_secs() / 60 {
            let time = Duration::from_secs(minute * 60);
            self.line("axis", [x(time), y], [x(time), y + 4.0]);
            self.text("hour", x(time), y + 16.0, minutes(time));
        }
    }

    fn finish(self, height: f64) -> String {
        format!(
            r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Calls of both runs over the day, by what became of them">
{}</svg>"#,
            self.0
        )
    }
}

/// 0 none, 1 a part of the calls suffers, 2 most or all do.
fn severity(weather: Weather) -> u8 {
    match weather {
        Weather::Fine => 0,
        Weather::RateLimited { limited, open } => 1 + u8::from(limited > open),
        Weather::ServerErrors(share)
        | Weather::Cut(share)
        | Weather::WrongAnswers(share)
        | Weather::Slow(share)
        | Weather::Streams(share) => 1 + u8::from(share >= 0.4),
        Weather::Refused | Weather::Quota => 2,
    }
}

/// Text that may stand anywhere in HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::stats::tests::{failure, record};

    pub(crate) fn transition(at: u64, from: CircuitState, to: CircuitState) -> Transition {
        Transition { at: Duration::from_secs(at), circuit: "alder", from, to, why: "5 of 10 < all".into() }
    }

    #[test]
    fn calls_fall_into_the_bucket_of_the_time_when_they_were_made() {
        let records = [
            record(0, Ending::Right, 1),
            record(9, failure("Timeout", true), 1),
            record(10, Ending::Right, 1),
            record(2000, Ending::Right, 1),
        ];
        let buckets = buckets(&records);
        assert_eq!(buckets.len(), BUCKETS);
        assert_eq!(buckets[0], Bucket { right: 1, failed: 1, wrong: 0 });
        assert_eq!((buckets[1].right, buckets[BUCKETS - 1].right), (1, 1));
    }

    #[test]
    fn a_circuit_is_always_in_one_state() {
        use CircuitState::*;
        let transitions = [
            transition(100, Closed, Open),
            transition(130, Open, HalfOpen),
            transition(131, HalfOpen, Closed),
        ];
        let stretches = stretches("alder", &transitions);
        let states: Vec<_> = stretches.iter().map(|(_, _, state)| *state).collect();
        assert_eq!(states, [Closed, Open, HalfOpen, Closed]);
        assert_eq!((stretches[0].0, stretches[3].1), (Duration::ZERO, DAY));
        assert!(stretches.windows(2).all(|pair| pair[0].1 == pair[1].0));
    }
}
