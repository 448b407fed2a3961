use std::{
    sync::atomic::{AtomicUsize, Ordering},
    task::Wake,
};

use proptest::prelude::*;

use super::*;

type L = Leader<u8, u32>;
type F = Follower<u8, u32>;

fn leads(flights: &Arc<Flights<u8, u32>>) -> L {
    match flights.join(1) {
        Joined::Leads(leader) => leader,
        Joined::Follows(_) => panic!("follows"),
    }
}

fn follows(flights: &Arc<Flights<u8, u32>>) -> F {
    match flights.join(1) {
        Joined::Follows(follower) => follower,
        Joined::Leads(_) => panic!("leads"),
    }
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll(follower: &mut F, wakes: &Arc<Wakes>) -> Poll<Followed<u8, u32>> {
    follower.poll(&mut Context::from_waker(&Arc::clone(wakes).into()))
}

fn wakes(wakes: &[Arc<Wakes>]) -> Vec<usize> {
    wakes.iter().map(|wakes| wakes.0.swap(0, Ordering::Relaxed)).collect()
}

/// Some followers that wait, with how often each is woken.
fn some(flights: &Arc<Flights<u8, u32>>, count: usize) -> (Vec<F>, Vec<Arc<Wakes>>) {
    let mut all: Vec<_> = (0..count).map(|_| follows(flights)).collect();
    let wakes: Vec<_> = (0..count).map(|_| Arc::default()).collect();
    for (follower, wakes) in all.iter_mut().zip(&wakes) {
        assert!(poll(follower, wakes).is_pending());
    }
    (all, wakes)
}

#[test]
fn a_good_answer_wakes_each_follower_once_and_the_next_call_leads_anew() {
    let flights = Flights::new();
    let leader = leads(&flights);
    let (mut all, woken) = some(&flights, 3);
    leader.done(Arc::new(7));
    assert_eq!(wakes(&woken), [1, 1, 1]);
    for (follower, wakes) in all.iter_mut().zip(&woken) {
        assert!(matches!(poll(follower, wakes), Poll::Ready(Followed::Answer(answer)) if *answer == 7));
    }
    assert_eq!(flights.len(), 0);
    drop(leads(&flights));
    assert_eq!(flights.len(), 0);
}

// P22, P23, G120, G121
#[test]
fn a_cancelled_leader_is_followed_by_exactly_one_and_wakes_nobody_else() {
    let flights = Flights::new();
    let leader = leads(&flights);
    let (mut all, woken) = some(&flights, 4);
    drop(leader);
    assert_eq!(wakes(&woken), [1, 0, 0, 0]);
    let Poll::Ready(Followed::Leads(second)) = poll(&mut all[0], &woken[0]) else { panic!("one leads") };
    assert!(poll(&mut all[1], &woken[1]).is_pending());
    assert!(matches!(flights.join(1), Joined::Follows(_)), "late comers follow the new leader");
    second.done(Arc::new(1));
    assert_eq!(wakes(&woken), [0, 1, 1, 1]);
}

#[test]
fn a_called_follower_that_goes_before_it_comes_passes_the_call_on() {
    let flights = Flights::new();
    let leader = leads(&flights);
    let (mut all, woken) = some(&flights, 3);
    drop(leader);
    drop(all.remove(0));
    assert_eq!(wakes(&woken), [1, 1, 0]);
    assert!(matches!(poll(&mut all[0], &woken[1]), Poll::Ready(Followed::Leads(_))));
}

#[test]
fn after_a_failure_two_take_over_then_four() {
    let flights = Flights::new();
    let first = leads(&flights);
    let (mut all, woken) = some(&flights, 9);
    first.failed();
    assert_eq!(wakes(&woken).iter().sum::<usize>(), 2);
    let mut leaders = Vec::new();
    for (follower, wakes) in all.iter_mut().zip(&woken) {
        if let Poll::Ready(Followed::Leads(leader)) = poll(follower, wakes) {
            leaders.push(leader);
        }
    }
    assert_eq!(leaders.len(), 2);
    leaders.into_iter().for_each(Leader::failed);
    assert_eq!(wakes(&woken).iter().sum::<usize>(), 4);
}

#[test]
fn what_cannot_be_shared_lets_all_ask_for_themselves() {
    let flights = Flights::new();
    let leader = leads(&flights);
    let (mut all, woken) = some(&flights, 3);
    leader.alone();
    for (follower, wakes) in all.iter_mut().zip(&woken) {
        assert!(matches!(poll(follower, wakes), Poll::Ready(Followed::Alone)));
    }
    assert_eq!(flights.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_life_is_taken_over_from_by_one() {
    let flights = Flights::new();
    let (patience, now) = (Duration::from_secs(60), Instant::now());
    let leader = leads(&flights);
    leader.alive(now);
    let (mut all, _woken) = some(&flights, 2);
    assert!(all[0].take_over(patience, now + Duration::from_secs(59)).is_none());
    let late = now + patience;
    let second = all[0].take_over(patience, late).unwrap();
    assert!(all[1].take_over(patience, late).is_none());
    // The first one comes after all.
    leader.done(Arc::new(1));
    drop(second);
    assert_eq!(flights.len(), 0);
}

/// Holds a call that follows too, as the waker of a task may that owns it.
struct Holds {
    _follower: Mutex<F>,
}

impl Wake for Holds {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_that_lets_go_of_another_follower_when_it_drops_finds_no_lock() {
    let flights = Flights::new();
    let leader = leads(&flights);
    let holds = || Waker::from(Arc::new(Holds { _follower: Mutex::new(follows(&flights)) }));
    let mut replaced = follows(&flights);
    let mut dropped = follows(&flights);
    for follower in [&mut replaced, &mut dropped] {
        assert!(follower.poll(&mut Context::from_waker(&holds())).is_pending());
    }
    assert!(poll(&mut replaced, &Arc::default()).is_pending());
    drop(dropped);
    // Nor does it while it takes over.
    let mut woken = follows(&flights);
    assert!(woken.poll(&mut Context::from_waker(&holds())).is_pending());
    drop(leader);
    assert!(poll(&mut woken, &Arc::default()).is_ready());
    drop(replaced);
    drop(woken);
    assert_eq!(flights.len(), 0);
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Join,
    Poll(usize),
    DropFollower(usize),
    DropLeader(usize),
    Fail(usize),
    Done(usize),
    Alone(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let n = || any::<usize>();
    prop_oneof![
        4 => Just(Act::Join),
        4 => n().prop_map(Act::Poll),
        2 => n().prop_map(Act::DropFollower),
        2 => n().prop_map(Act::DropLeader),
        1 => n().prop_map(Act::Fail),
        1 => n().prop_map(Act::Done),
        1 => n().prop_map(Act::Alone),
    ]
}

proptest! {
    /// Whatever happens in whatever order: whoever waits has a leader, or somebody that was woken to become one; and
    /// when all have gone, nothing is left.
    #[test]
    fn nobody_waits_for_nobody(acts in proptest::collection::vec(act(), 0..60)) {
        let flights = Flights::<u8, u32>::new();
        let mut leaders: Vec<L> = Vec::new();
        // With its wakes: one that was woken is polled again at the end.
        let mut followers: Vec<(F, Arc<Wakes>)> = Vec::new();
        for act in acts {
            match act {
                Act::Join => match flights.join(1) {
                    Joined::Leads(leader) => leaders.push(leader),
                    Joined::Follows(follower) => followers.push((follower, Arc::default())),
                },
                Act::Poll(at) if !followers.is_empty() => {
                    let at = at % followers.len();
                    let (follower, wakes) = &mut followers[at];
                    match poll(follower, &Arc::clone(wakes)) {
                        Poll::Pending => {}
                        Poll::Ready(Followed::Leads(leader)) => {
                            leaders.push(leader);
                            followers.remove(at);
                        }
                        Poll::Ready(_) => {
                            followers.remove(at);
                        }
                    }
                }
                Act::DropFollower(at) if !followers.is_empty() => drop(followers.remove(at % followers.len())),
                Act::DropLeader(at) if !leaders.is_empty() => drop(leaders.remove(at % leaders.len())),
                Act::Fail(at) if !leaders.is_empty() => leaders.remove(at % leaders.len()).failed(),
                Act::Done(at) if !leaders.is_empty() => leaders.remove(at % leaders.len()).done(Arc::new(1)),
                Act::Alone(at) if !leaders.is_empty() => leaders.remove(at % leaders.len()).alone(),
                _ => {}
            }
        }
        // A runtime polls new tasks and those that were woken; each time a leader comes out it is cancelled.
        leaders.clear();
        let mut first = true;
        loop {
            let before = followers.len();
            followers.retain_mut(|(follower, wakes)| {
                let woken = wakes.0.swap(0, Ordering::Relaxed) > 0;
                !(first || woken) || poll(follower, &Arc::clone(wakes)).is_pending()
            });
            first = false;
            if followers.len() == before {
                break;
            }
        }
        prop_assert!(followers.is_empty(), "{} wait for nobody", followers.len());
        prop_assert_eq!(flights.len(), 0);
    }
}
