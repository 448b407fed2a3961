//! A retry storm, and how it does not come about: two hundred clients and a server on loopback that is down for twelve seconds.
//! Once with a naive loop around the client, as it is written a thousand times, and once with a `RetryLayer` as it comes.
//!
//! ```sh
//! cargo run --release -p retry-layer --example storm --features reqwest-013 -- crates/retry-layer/storm.svg
//! ```
//!
//! It takes three quarters of a minute, prints what the server saw, and draws it, if a file is named. It ends with an error when the
//! layer sends more than its budget allows.

use std::{
    convert::Infallible,
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use failsoft_core::BoxError;
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use reqwest::{Client, Method, Request, Response};
use retry_layer::RetryLayer;
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tower::{Layer, Service, ServiceExt, util::BoxCloneService};

const CLIENTS: u64 = 200;
const DOWN: Duration = Duration::from_secs(4);
const UP: Duration = Duration::from_secs(16);
const END: Duration = Duration::from_secs(22);
/// One point of the chart.
const TICK: Duration = Duration::from_millis(200);
/// When what the budget had saved before the outage is spent, and the retries that it paid for have come.
const SETTLED: Duration = Duration::from_secs(11);

type Retrying = BoxCloneService<Request, Response, BoxError>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let naive = ride("naive loop", |client| {
        tower::service_fn(move |request| naive(client.clone(), request)).boxed_clone()
    })
    .await?;
    let layer = RetryLayer::new();
    let ours = ride("RetryLayer", |client| layer.layer(client).boxed_clone()).await?;
    for ride in [&naive, &ours] {
        ride.print();
    }
    if let Some(file) = std::env::args().nth(1) {
        std::fs::write(&file, chart(&naive, &ours))?;
        println!("drawn to {file}");
    }
    // A fifth of the calls, and ten a second; a twentieth more for calls that straddle the ends of what is measured.
    let allowed = 1.2 + 10.0 / (ours.calls.within(SETTLED, UP) / (UP - SETTLED).as_secs_f64()) + 0.05;
    if ours.amplification() > allowed {
        return Err(format!(
            "{:.2} requests a call, and at most {allowed:.2} are allowed",
            ours.amplification()
        )
        .into());
    }
    Ok(())
}

/// Three more attempts, a tenth of a second apart, whatever happens.
async fn naive(client: Client, request: Request) -> Result<Response, BoxError> {
    for _ in 0..3 {
        let again = request.try_clone().ok_or("a body that can be sent once")?;
        match client.execute(again).await {
            Ok(response) if response.status().is_success() => return Ok(response),
            _ => sleep(Duration::from_millis(100)).await,
        }
    }
    Ok(client.execute(request).await?)
}

/// The times of something since the beginning.
#[derive(Clone, Default)]
struct Times(Arc<Mutex<Vec<Duration>>>);

impl Times {
    fn push(&self, at: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(at);
    }

    fn within(&self, from: Duration, to: Duration) -> f64 {
        let times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.iter().filter(|at| (from..to).contains(at)).count() as f64
    }

    /// How many a second, tick by tick.
    fn rates(&self) -> Vec<f64> {
        let ticks = (0..).map(|i| TICK * i).take_while(|from| *from < END);
        ticks.map(|from| self.within(from, from + TICK) / TICK.as_secs_f64()).collect()
    }

    fn peak(&self, from: Duration, to: Duration) -> f64 {
        let first = (from.as_millis() / TICK.as_millis()) as usize;
        let last = (to.as_millis() / TICK.as_millis()) as usize;
        self.rates()[first..last].iter().copied().fold(0.0, f64::max)
    }
}

/// What became of one way to retry.
struct Ride {
    name: &'static str,
    calls: Times,
    requests: Times,
}

impl Ride {
    fn amplification(&self) -> f64 {
        self.requests.within(SETTLED, UP) / self.calls.within(SETTLED, UP)
    }

    fn print(&self) {
        println!(
            "{:<12} {:>6.0} calls {:>6.0} requests; in the outage {:.2} requests a call, at most {:>5.0} a second; \
             before {:>4.0}, after {:>4.0}",
            self.name,
            self.calls.within(Duration::ZERO, END),
            self.requests.within(Duration::ZERO, END),
            self.amplification(),
            self.requests.peak(DOWN, UP),
            self.requests.peak(Duration::from_secs(1), DOWN),
            self.requests.peak(UP, END),
        );
    }
}

/// Two hundred clients call, and think for half a second on average, from the server's first second to its last.
async fn ride(name: &'static str, retrying: impl Fn(Client) -> Retrying) -> Result<Ride, BoxError> {
    let (calls, requests) = (Times::default(), Times::default());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/v1/models", listener.local_addr()?);
    let began = Instant::now();
    let server = tokio::spawn(serve(listener, began, requests.clone()));
    let client = Client::builder().retry(reqwest::retry::never()).no_proxy().build()?;
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let (mut service, calls) = (retrying(client.clone()), calls.clone());
        let url = url.parse()?;
        clients.spawn(async move {
            let mut think = thoughts(number);
            loop {
                sleep(think()).await;
                calls.push(began.elapsed());
                let Ok(ready) = service.ready().await else { return };
                // What comes of it the server sees.
                let _ = ready.call(Request::new(Method::GET, Clone::clone(&url))).await;
            }
        });
    }
    sleep_until(began + END).await;
    clients.shutdown().await;
    server.abort();
    Ok(Ride { name, calls, requests })
}

/// From 250 to 750 ms, different for each client.
fn thoughts(client: u64) -> impl FnMut() -> Duration {
    let mut random = client + 1;
    move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis(250 + (random >> 33) % 500)
    }
}

/// 503 while it is down, else 200, after 20 ms each.
async fn serve(listener: TcpListener, began: Instant, requests: Times) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let requests = requests.clone();
        let answer = service_fn(move |_: hyper::Request<Incoming>| {
            let at = began.elapsed();
            requests.push(at);
            async move {
                sleep(Duration::from_millis(20)).await;
                let mut response = hyper::Response::new(Full::<Bytes>::default());
                if (DOWN..UP).contains(&at) {
                    *response.status_mut() = hyper::StatusCode::SERVICE_UNAVAILABLE;
                }
                Ok::<_, Infallible>(response)
            }
        });
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), answer));
    }
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = HEIGHT - 36.0;

fn chart(naive: &Ride, ours: &Ride) -> String {
    let (loud, calm, calls) = (naive.requests.rates(), ours.requests.rates(), ours.calls.rates());
    let highest = loud.iter().chain(&calm).copied().fold(1.0, f64::max);
    let step = [100.0, 200.0, 250.0, 500.0, 1_000.0]
        .into_iter()
        .find(|step| highest / step <= 6.0)
        .unwrap_or(2_000.0);
    let top = (highest / step).ceil() * step;
    let x = |at: Duration| LEFT + (RIGHT - LEFT) * at.as_secs_f64() / END.as_secs_f64();
    let y = |rate: f64| BOTTOM - (BOTTOM - TOP) * rate / top;
    let line = |rates: &[f64]| {
        let points =
            rates.iter().zip(0..).map(|(rate, i)| format!("{:.1},{:.1}", x(TICK * i + TICK / 2), y(*rate)));
        points.collect::<Vec<_>>().join(" ")
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>Requests a second that reach a server in outage</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" fill=\"#222222\" font-weight=\"bold\">Requests a second, 200 clients</text>\n\
         <rect x=\"{:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#f0f0f0\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#555555\" text-anchor=\"middle\">the server answers 503</text>\n",
        x(DOWN),
        x(UP) - x(DOWN),
        BOTTOM - TOP,
        (x(DOWN) + x(UP)) / 2.0,
        TOP - 8.0,
    );
    let steps = (0..).map(|i| step * f64::from(i)).take_while(|rate| *rate <= top);
    for rate in steps {
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{0:.1}\" y2=\"{0:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{1:.1}\" y=\"{2:.1}\" fill=\"#555555\" text-anchor=\"end\">{rate}</text>",
            y(rate),
            LEFT - 8.0,
            y(rate) + 4.0,
        );
    }
    for second in (0..=END.as_secs()).step_by(2) {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#555555\" text-anchor=\"middle\">{second} s</text>",
            x(Duration::from_secs(second)),
            BOTTOM + 20.0,
        );
    }
    let curves = [
        (&loud, "#c0392b", "", "a naive loop: 3 more attempts, 0.1 s apart"),
        (&calm, "#1f6fb2", "", "RetryLayer, as it comes"),
        (&calls, "#888888", "stroke-dasharray=\"4 3\"", "its calls"),
    ];
    for (i, (rates, colour, dash, name)) in curves.into_iter().enumerate() {
        let at = LEFT + 240.0 + [0.0, 300.0, 470.0][i];
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" {dash}/>\n\
             <text x=\"{at}\" y=\"20\" fill=\"{colour}\">{name}</text>",
            line(rates),
        );
    }
    svg.push_str("</svg>\n");
    svg
}
