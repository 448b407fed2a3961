//! Beside a map that is looked up.

use super::*;

#[derive(Clone, Debug)]
enum Act {
    Ask { tenant: &'static str, question: u8, stream: bool, frames: usize },
    Wait(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let tenant = prop_oneof![Just("a"), Just("b")];
    prop_oneof![
        6 => (tenant, 0_u8..4, any::<bool>(), 0_usize..4)
            .prop_map(|(tenant, question, stream, frames)| Act::Ask { tenant, question, stream, frames }),
        1 => (1_u64..40).prop_map(Act::Wait),
    ]
}

/// Counts its calls into the answers; answers of the question 3 are bad.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicU32>);

impl Service<Req> for Counting {
    type Response = Response<BoxBody>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<BoxBody>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let tenant = request.headers()["x-tenant"].to_str().unwrap();
        let text = format!("{tenant} {} {number}", request.body());
        let mut answer = if request.body().contains("stream") {
            Answer::events(&[&format!("data: {text}\n\n"), "data: [DONE]\n\n"])
        } else {
            let (head, tail) = text.split_at(3);
            Answer {
                pieces: vec![Ok(head.to_owned().into()), Ok(tail.to_owned().into())],
                ..Answer::good("")
            }
        };
        if request.body().contains("\"q\":3") {
            answer.verdict = Some(Verdict::of(Class::Refused));
        }
        std::future::ready(Ok(answer.response()))
    }
}

proptest! {
    /// Beside a map: what each call must get, whichever calls were read to their end before.
    #[test]
    fn the_cache_does_what_a_plain_map_does(acts in proptest::collection::vec(act(), 0..40)) {
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
            let ttl = Duration::from_secs(60);
            let cache = Cache::builder().scope(tenant).ttl(ttl).build().unwrap();
            let service: Cached<Counting, _> = CacheLayer::new(cache).layer(Counting::default());
            let mut map: HashMap<(&str, u8, bool), (String, tokio::time::Instant)> = HashMap::new();
            for act in acts {
                match act {
                    Act::Wait(seconds) => tokio::time::advance(Duration::from_secs(seconds)).await,
                    Act::Ask { tenant, question, stream, frames } => {
                        let now = tokio::time::Instant::now();
                        let more = if stream { r#","stream":true"# } else { "" };
                        let response = service.clone().oneshot(ask_of(tenant, &format!(r#"{{"q":{question}{more}}}"#))).await.unwrap();
                        let key = (tenant, question, stream);
                        let expected = map.get(&key).filter(|(_, kept)| now - *kept < ttl).map(|(text, _)| text.clone());
                        prop_assert_eq!(CacheStatus::of(response.extensions()).is_some(), expected.is_some());
                        let mut body = response.into_body();
                        let mut text = String::new();
                        let mut is_over = false;
                        // The last poll sees the end; a stream says it by itself.
                        for _ in 0..frames {
                            match body.frame().await {
                                Some(frame) => text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap()),
                                None => { is_over = true; break; }
                            }
                        }
                        match expected {
                            Some(expected) => prop_assert!(expected.starts_with(&text)),
                            None => {
                                prop_assert!(text.is_empty() || text.contains(tenant), "{text} for {tenant}");
                                let over = is_over || (stream && text.ends_with("data: [DONE]\n\n"));
                                if over && question != 3 {
                                    map.insert(key, (text, now));
                                }
                            }
                        }
                    }
                }
            }
            Ok(())
        })?;
    }
}
