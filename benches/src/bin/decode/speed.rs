//! How fast, and with how many allocations.

use std::{hint::black_box, time::Duration};

use bytes::Bytes;

use crate::{
    decoders::{self, ALL, Who},
    native::Native,
    samples::{self, Cut, Framing, Sample},
    text::Text,
};

/// What one decoder did with one stream.
pub(crate) struct Row {
    stream: &'static str,
    cut: String,
    work: String,
    megabytes: f64,
    nanos: f64,
    allocs: f64,
}

/// What is done.
#[derive(Clone, Copy)]
enum Work {
    /// Cuts the stream into events.
    Events(Who),
    /// And reads each with serde_json.
    Text(Who),
    /// The same of a stream that is framed in another way.
    NativeEvents(Native),
    NativeText(Native),
    /// Ours with everything that goes into the insight.
    Insight,
}

const RUNS: usize = 25;

impl Work {
    fn all(framing: Framing) -> Vec<Self> {
        let mut all: Vec<Self> = match framing {
            Framing::Sse => {
                ALL.into_iter().map(Self::Events).chain(ALL.into_iter().map(Self::Text)).collect()
            }
            _ => {
                let native = Native::of(framing).iter().copied();
                let events = native.clone().filter(|who| who.gives_events()).map(Self::NativeEvents);
                events.chain(native.map(Self::NativeText)).collect()
            }
        };
        all.push(Self::Insight);
        all
    }

    const fn gives_text(self) -> bool {
        !matches!(self, Self::Events(_) | Self::NativeEvents(_))
    }

    fn name(self) -> String {
        match self {
            Self::Events(who) => format!("{}, events only", who.name()),
            Self::Text(who) => format!("{} + serde_json", who.name()),
            Self::NativeEvents(who) => format!("{}, events only", who.name()),
            Self::NativeText(who) => format!("{} + serde_json", who.name()),
            Self::Insight => "llm-layer, insight".to_owned(),
        }
    }

    /// The length of what was read.
    fn run(self, sample: &Sample, pieces: &[Bytes]) -> usize {
        self.begun(sample)(pieces)
    }

    /// The work, for which everything is set up that is set up once a call.
    fn begun(self, sample: &Sample) -> impl FnOnce(&[Bytes]) -> usize {
        let decoder = if matches!(self, Self::Insight) { decoders::llm(sample) } else { None };
        move |pieces| match decoder {
            Some(decoder) => decoders::insight(decoder, pieces),
            None => self.by(sample, pieces),
        }
    }

    fn by(self, sample: &Sample, pieces: &[Bytes]) -> usize {
        let (provider, framing) = (sample.provider, sample.framing);
        match self {
            Self::Events(who) => {
                let mut length = 0;
                who.decode(pieces, |data| length += black_box(data).len());
                length
            }
            Self::Text(who) => {
                let mut text = Text::new(provider);
                who.decode(pieces, |data| text.add(data));
                text.text.len()
            }
            Self::NativeEvents(who) => {
                let mut length = 0;
                who.decode(framing, pieces, |data| length += black_box(data).len());
                length
            }
            Self::NativeText(who) => who.text(provider, framing, pieces).len(),
            Self::Insight => 0,
        }
    }
}

/// All rows. Of one stream they take turns, and of each the least time counts: noise only adds.
pub(crate) fn rows(is_wanted: impl Fn(&str) -> bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for sample in samples::all().into_iter().filter(|sample| is_wanted(sample.name)) {
        for cut in [Cut::Events, Cut::Bytes(1_460), Cut::Bytes(16_384)] {
            rows.extend(compare(&sample, cut));
        }
    }
    rows
}

fn compare(sample: &Sample, cut: Cut) -> Vec<Row> {
    let pieces = cut.pieces(sample);
    let works = Work::all(sample.framing);
    let mut least = vec![Duration::MAX; works.len()];
    for work in &works {
        if work.gives_text() {
            assert_eq!(work.run(sample, &pieces), sample.text.len(), "{} reads all of the text", work.name());
        }
    }
    for _ in 0..RUNS {
        for (work, least) in works.iter().zip(&mut least) {
            let run = work.begun(sample);
            *least = timed(|| run(black_box(&pieces))).min(*least);
        }
    }
    let row = |(work, least): (&Work, &Duration)| {
        let run = work.begun(sample);
        let allocated = allocation_counter::measure(|| {
            black_box(run(&pieces));
        });
        Row {
            stream: sample.name,
            cut: cut.name(),
            work: work.name(),
            megabytes: sample.stream.len() as f64 / 1e6 / least.as_secs_f64(),
            nanos: least.as_nanos() as f64 / sample.events as f64,
            allocs: allocated.count_total as f64 * 100.0 / sample.events as f64,
        }
    };
    works.iter().zip(&least).map(row).collect()
}

#[allow(clippy::disallowed_methods, reason = "a bench measures the machine's own time")]
fn timed<T>(run: impl FnOnce() -> T) -> Duration {
    let start = std::time::Instant::now();
    drop(black_box(run()));
    start.elapsed()
}

impl Row {
    pub(crate) fn json(&self) -> String {
        let Self { stream, cut, work, megabytes, nanos, allocs } = self;
        format!(
            r#"{{"stream": "{stream}", "cut": "{cut}", "work": "{work}", "mb_per_s": {megabytes:.0}, "ns_per_event": {nanos:.1}, "allocs_per_100_events": {allocs:.2}}}"#
        )
    }
}

pub(crate) fn print(rows: &[Row]) {
    let mut last = ("", "");
    for Row { stream, cut, work, megabytes, nanos, allocs } in rows {
        if last != (stream, cut) {
            let title = format!("{stream}, {cut}");
            println!("{title:<42} {:>8} {:>9} {:>16}", "MB/s", "ns/event", "allocs/100 ev.");
            last = (stream, cut);
        }
        println!("  {work:<40} {megabytes:>8.0} {nanos:>9.1} {allocs:>16.2}");
    }
}
