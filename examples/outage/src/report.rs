//! The report: one HTML file that needs nothing else, light or dark as its reader likes it.

use crate::chart::{chart, escape};
use crate::clock::{Pace, minutes};
use crate::ride::Ride;
use crate::stats::Figures;
use crate::table::{rows, title};
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::time::Duration;

pub(crate) fn report(ride: &Ride) -> String {
    let (bare, stack) = (ride.bare.figures(), ride.stack.figures());
    let title = escape(&title(ride));
    format!(
        r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Failsoft: bad day {seed}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>One bad day, twice</h1>
<p class="lead">{title}</p>
<div class="cards">{cards}</div>
<figure>
<figcaption><span class="key right"></span>right <span class="key failed"></span>failed, with an error
<span class="key wrong"></span>wrong, and handed on. Steps without input, readers who hang up and calls that a budget
denies are not drawn.<br>
<span class="key closed"></span>circuit closed <span class="key half-open"></span>half-open
<span class="key open"></span>open <span class="key mark"></span>the moment when one opened</figcaption>
<div class="wide">{chart}</div>
</figure>
<h2>Figures</h2>
{table}
<h2>What went wrong</h2>
{kinds}
<h2>Circuit transitions</h2>
{transitions}
</main>
</body>
</html>
"#,
        seed = ride.plan.seed,
        cards = cards(&bare, &stack, ride.pace),
        chart = chart(ride),
        table = table(&rows(&bare, &stack, ride.pace)),
        kinds = kinds(&bare, &stack),
        transitions = transitions(ride),
    )
}

fn cards(bare: &Figures, stack: &Figures, pace: Pace) -> String {
    let seconds = |time: Duration| pace.of_day(time).as_secs_f64();
    type Value<'a> = &'a dyn Fn(&Figures) -> String;
    let cards: [(&str, Value<'_>); 6] = [
        ("of the answerable answered rightly", &|figures| {
            format!("{:.1} %", 100.0 * figures.answered as f64 / figures.answerable.max(1) as f64)
        }),
        ("wrong answers that got through", &|figures| figures.wrong.to_string()),
        ("calls that failed", &|figures| figures.failed.to_string()),
        ("attempts per right answer", &|figures| format!("{:.2}", figures.attempts_per_answer())),
        ("to the first word of half the streams", &|figures| format!("{:.1} s", seconds(figures.first_p50))),
        ("tokens billed for an agent going in circles", &|figures| {
            figures.accounts.looping.billed.to_string()
        }),
    ];
    let mut html = String::new();
    for (what, value) in cards {
        let _infallible = write!(
            html,
            r#"<div class="card"><p>{what}</p><b>{}</b><span>through the stack</span><b class="then">{}</b><span>bare</span></div>"#,
            value(stack),
            value(bare)
        );
    }
    html
}

fn table(rows: &[[String; 3]]) -> String {
    let mut html = String::from(
        "<table><thead><tr><th></th><th>bare</th><th>through the stack</th></tr></thead><tbody>",
    );
    for [name, bare, stack] in rows {
        let [name, bare, stack] = [name, bare, stack].map(|text| escape(text));
        let _infallible = write!(html, "<tr><th>{name}</th><td>{bare}</td><td>{stack}</td></tr>");
    }
    html.push_str("</tbody></table>");
    html
}

fn kinds(bare: &Figures, stack: &Figures) -> String {
    let mut html = String::from("<table><tbody>");
    for (run, figures) in [("bare", bare), ("stack", stack)] {
        for (what, counts) in [
            ("wrong answers that got through", list(&figures.wrong_kinds)),
            ("failed calls", list(&figures.failed_classes)),
        ] {
            let _infallible = write!(html, "<tr><th>{run}: {what}</th><td>{counts}</td></tr>");
        }
    }
    html.push_str("</tbody></table>");
    html
}

fn list<K: Display>(counts: &BTreeMap<K, usize>) -> String {
    if counts.is_empty() {
        return "none".into();
    }
    let counts: Vec<_> =
        counts.iter().map(|(kind, count)| format!("{} {count}", escape(&kind.to_string()))).collect();
    counts.join(", ")
}

fn transitions(ride: &Ride) -> String {
    let mut html = String::from(
        "<table><thead><tr><th>time</th><th>circuit</th><th>from</th><th>to</th><th>phase</th><th>why</th></tr></thead><tbody>",
    );
    for transition in &ride.stack.transitions {
        let _infallible = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            minutes(transition.at),
            transition.circuit,
            transition.from.name(),
            transition.to.name(),
            ride.script.phase(transition.at).name,
            escape(&transition.why)
        );
    }
    html.push_str("</tbody></table>");
    html
}

const STYLE: &str = "
:root { color-scheme: light dark;
  --page: #fbfbf9; --card: #fff; --ink: #22262b; --soft: #666d75; --rule: #dcdfe1; --even: #00000000; --odd: #0000000a;
  --right: #2b8f80; --failed: #e3a13a; --wrong: #cf2f52; --closed: #b9d9d3; --half: #efcf8b; --open: #7c5ba8;
  --fine: #edf1ef; --light: #f3dfb4; --heavy: #e9b3a6; --cell: #4c3a2a; }
@media (prefers-color-scheme: dark) { :root {
  --page: #15181b; --card: #1d2125; --ink: #e6e8ea; --soft: #9aa2aa; --rule: #343a40; --even: #00000000; --odd: #ffffff0a;
  --right: #36a592; --failed: #d9983a; --wrong: #f0486b; --closed: #24463f; --half: #8d6f2c; --open: #a283cf;
  --fine: #23292b; --light: #57471f; --heavy: #6b342a; --cell: #f0dfcb; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { margin: 0; font-size: 28px; letter-spacing: -.01em; }
h2 { margin: 34px 0 8px; font-size: 17px; }
.lead { margin: 4px 0 20px; color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 12px; }
.card { display: grid; grid-template-columns: auto 1fr; gap: 0 10px; align-items: baseline; align-content: start; padding: 14px 16px;
  background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
.card b { font-size: 26px; font-variant-numeric: tabular-nums; color: var(--right); }
.card b.then { font-size: 18px; color: var(--soft); }
.card span { color: var(--soft); font-size: 13px; }
.card p { grid-column: 1 / -1; margin: 0 0 4px; }
figure { margin: 16px 0 0; padding: 14px 14px 8px; background: var(--card); border: 1px solid var(--rule);
  border-radius: 10px; }
figcaption { font-size: 13px; color: var(--soft); margin-bottom: 8px; }
.key { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin: 0 3px 0 12px; }
.key:first-child { margin-left: 0; }
.key.right { background: var(--right); } .key.failed { background: var(--failed); }
.key.wrong { background: var(--wrong); }
.key.closed { background: var(--closed); } .key.half-open { background: var(--half); }
.key.open { background: var(--open); }
.key.mark { background: var(--open); clip-path: polygon(50% 10%, 100% 95%, 0 95%); }
.wide { overflow-x: auto; }
svg { display: block; width: 100%; min-width: 900px; height: auto; }
svg text { fill: var(--soft); font-size: 11px; }
svg .name, svg .hour, svg .cell { text-anchor: middle; }
svg .name { fill: var(--ink); font-size: 11.5px; }
svg .cell { fill: var(--cell); font-size: 10.5px; }
svg .run, svg .tick, svg .lane { text-anchor: end; }
svg .run { fill: var(--ink); font-size: 14px; font-weight: 600; }
svg .lane { fill: var(--ink); font-size: 12px; }
svg .heading { font-size: 12px; }
svg .axis { stroke: var(--soft); stroke-width: 1; }
svg .even { fill: var(--even); } svg .odd { fill: var(--odd); }
svg .right { fill: var(--right); } svg .failed { fill: var(--failed); } svg .wrong { fill: var(--wrong); }
svg .closed { fill: var(--closed); } svg .half-open { fill: var(--half); } svg .open, svg .mark { fill: var(--open); }
svg .fine { fill: var(--fine); } svg .light { fill: var(--light); } svg .heavy { fill: var(--heavy); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 14px 5px 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule);
  font-weight: 400; }
thead th { color: var(--soft); font-size: 13px; }
tbody th { color: var(--soft); white-space: nowrap; }
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::tests::transition;
    use crate::client::CircuitState;
    use crate::ride::Plan;
    use crate::script::Script;
    use crate::stats::tests::run;
    use std::sync::Arc;

    #[test]
    fn a_report_is_whole_and_needs_nothing_else() {
        let mut stack = run();
        stack.transitions = vec![
            transition(100, CircuitState::Closed, CircuitState::Open),
            transition(130, CircuitState::Open, CircuitState::HalfOpen),
        ];
        let ride = Ride {
            plan: Plan { seed: 7, seconds: 60.0, agents: 32 },
            pace: Pace { factor: 30.0 },
            script: Arc::new(Script::new(7)),
            bare: run(),
            stack,
        };
        let html = report(&ride);
        assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
        assert!(html.contains("<title>Failsoft: bad day 7</title>"));
        for tag in ["svg", "main", "figure", "table", "style", "div"] {
            let opened = html.matches(&format!("<{tag}")).count();
            assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}");
        }
        // Whatever an error said is text, not markup.
        assert!(html.contains("unreadable &lt;answer&gt;") && !html.contains("<answer>"));
        assert!(html.contains("01:40: alder opened. 5 of 10 &lt; all"));
        for outside in ["http://", "https://", "<script", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
