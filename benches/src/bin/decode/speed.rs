//! How fast, and with how many allocations.

use std::{hint::black_box, time::Duration};

use bytes::Bytes;
use llm_layer::Provider;

use crate::{
    decoders::{self, ALL, Text, Who},
    samples::{self, Cut, Sample},
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
    /// Ours with everything that goes into the insight.
    Insight,
}

const RUNS: usize = 25;

impl Work {
    fn all() -> Vec<Self> {
        let events = ALL.into_iter().map(Self::Events);
        events.chain(ALL.into_iter().map(Self::Text)).chain([Self::Insight]).collect()
    }

    fn name(self) -> String {
        match self {
            Self::Events(who) => format!("{}, events only", who.name()),
            Self::Text(who) => format!("{} + serde_json", who.name()),
            Self::Insight => "llm-layer, insight".to_owned(),
        }
    }

    /// The length of what was read.
    fn run(self, provider: Provider, pieces: &[Bytes]) -> usize {
        self.begun(provider)(pieces)
    }

    /// The work, for which everything is set up that is set up once a call.
    fn begun(self, provider: Provider) -> impl FnOnce(&[Bytes]) -> usize {
        let decoder = if matches!(self, Self::Insight) { decoders::llm(provider) } else { None };
        move |pieces| match decoder {
            Some(decoder) => decoders::insight(decoder, pieces),
            None => self.by(provider, pieces),
        }
    }

    fn by(self, provider: Provider, pieces: &[Bytes]) -> usize {
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
            Self::Insight => 0,
        }
    }
}

/// All rows. Of one stream they take turns, and of each the least time counts: noise only adds.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for sample in samples::all() {
        for cut in [Cut::Events, Cut::Bytes(1_460), Cut::Bytes(16_384)] {
            rows.extend(compare(&sample, cut));
        }
    }
    rows
}

fn compare(sample: &Sample, cut: Cut) -> Vec<Row> {
    let pieces = cut.pieces(&sample.stream);
    let works = Work::all();
    let mut least = vec![Duration::MAX; works.len()];
    for work in &works {
        if !matches!(work, Work::Events(_)) {
            assert_eq!(
                work.run(sample.provider, &pieces),
                sample.text.len(),
                "{} reads all of the text",
                work.name()
            );
        }
    }
    for _ in 0..RUNS {
        for (work, least) in works.iter().zip(&mut least) {
            let run = work.begun(sample.provider);
            *least = timed(|| run(black_box(&pieces))).min(*least);
        }
    }
    let row = |(work, least): (&Work, &Duration)| {
        let run = work.begun(sample.provider);
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
