use std::{
    sync::atomic::{AtomicBool, AtomicUsize},
    thread,
};

use proptest::prelude::*;

use super::*;

/// A value with a pin, that counts how often it is asked.
#[derive(Default)]
struct Value {
    pinned: AtomicBool,
    asked: AtomicUsize,
}

impl Value {
    fn pin(&self, on: bool) {
        self.pinned.store(on, Ordering::Relaxed);
    }
}

impl Evict for Value {
    fn may_go(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        !self.pinned.load(Ordering::Relaxed)
    }
}

fn pinned() -> Value {
    Value { pinned: true.into(), asked: 0.into() }
}

fn add(map: &KeyMap<u32, Value>, key: u32) -> bool {
    map.get_or_insert_with(key, Value::default).is_ok()
}

fn keys(map: &KeyMap<u32, Value>) -> Vec<u32> {
    let mut keys: Vec<_> = map.entries().into_iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn the_least_recently_used_goes() {
    let map = KeyMap::refusing(2);
    assert!(add(&map, 1) && add(&map, 2));
    assert!(map.get(&1).is_some());
    assert!(add(&map, 3));
    assert_eq!((keys(&map), map.evicted(), map.turned_away()), (vec![1, 3], 1, 0));
}

#[test]
fn what_is_pinned_or_held_by_somebody_stays() {
    let map = KeyMap::refusing(2);
    map.get_or_insert_with(1, pinned).unwrap();
    let held = map.get_or_insert_with(2, Value::default).unwrap();
    assert_eq!(map.get_or_insert_with(3, Value::default).err(), Some(KeysFull { capacity: 2 }));
    assert_eq!(map.turned_away(), 1);
    drop(held);
    assert!(add(&map, 3));
    assert_eq!(keys(&map), [1, 3]);
}

#[test]
fn one_that_was_pinned_when_it_was_the_oldest_can_go_later() {
    let map = KeyMap::refusing(1);
    map.get_or_insert_with(1, pinned).unwrap();
    assert!(!add(&map, 2) && !add(&map, 2));
    map.get(&1).unwrap().pin(false);
    assert!(add(&map, 2));
    map.get(&2).unwrap().pin(true);
    assert!(!add(&map, 3));
    map.entries()[0].1.pin(false);
    assert!(add(&map, 3));
}

// Whoever came last went first, and those stayed that nobody had asked for since they were pinned.
#[test]
fn what_was_set_aside_and_may_go_by_now_goes_before_the_newest() {
    let map = KeyMap::refusing(100);
    for key in 0..100 {
        map.get_or_insert_with(key, pinned).unwrap();
    }
    while !add(&map, 100) {
        map.entries().iter().find(|(key, _)| *key == 0).unwrap().1.pin(false);
    }
    map.entries().iter().for_each(|(_, value)| value.pin(false));
    (101..200).for_each(|key| assert!(add(&map, key)));
    assert_eq!(keys(&map), (100..200).collect::<Vec<_>>());
}

#[test]
fn keys_without_room_share_the_overflow() {
    let map = KeyMap::sharing(1, Value::default());
    map.get_or_insert_with(1, pinned).unwrap();
    let shared = [2, 3].map(|key| map.get_or_insert_with(key, Value::default).unwrap());
    assert!(shared.iter().all(|value| Arc::ptr_eq(value, map.overflow().unwrap())));
    assert_eq!((map.turned_away(), map.len()), (2, 1));
    assert!(map.get(&2).is_none());
}

#[test]
fn a_capacity_of_zero_is_one() {
    let map = KeyMap::refusing(0);
    assert!(add(&map, 1) && add(&map, 2));
    assert_eq!((map.capacity(), map.len()), (1, 1));
}

#[test]
fn a_removed_key_is_made_anew() {
    let map = KeyMap::refusing(4);
    let old = map.get_or_insert_with(1, pinned).unwrap();
    assert!(Arc::ptr_eq(&old, &map.remove(&1).unwrap()));
    assert!(map.remove(&1).is_none() && map.is_empty());
    assert!(!Arc::ptr_eq(&old, &map.get_or_insert_with(1, Value::default).unwrap()));
}

#[test]
fn strings_are_found_by_str() {
    let map = KeyMap::refusing(4);
    map.get_or_insert_with(Arc::<str>::from("a"), Value::default).unwrap();
    assert!(map.get("a").is_some() && map.get("b").is_none());
}

#[test]
fn with_many_pinned_a_new_key_looks_at_a_bounded_number() {
    const MANY: u32 = 5_000;
    let map = KeyMap::refusing(MANY as usize);
    // The youngest may go, and all before it may not.
    for key in 1..MANY {
        map.get_or_insert_with(key, pinned).unwrap();
    }
    assert!(add(&map, 0));
    let asked =
        || -> usize { map.entries().iter().map(|(_, value)| value.asked.load(Ordering::Relaxed)).sum() };
    let mut tries = 0;
    loop {
        let before = asked();
        tries += 1;
        if add(&map, MANY) {
            break;
        }
        assert!(asked() - before <= LOOK);
    }
    let most = (MANY as usize).div_ceil(LOOK - AGAIN);
    assert!(tries <= most, "each goes on where the one before stopped: {tries}");
    // From then on the one that may go is found at once, and of the pinned only a few are looked at.
    for key in 0..100 {
        let before = asked();
        assert!(add(&map, 2 * MANY + key));
        assert!(asked() - before <= 1 + AGAIN);
    }
}

#[test]
fn a_panic_while_a_value_is_made_leaves_the_map_in_order() {
    let map = KeyMap::refusing(1);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        map.get_or_insert_with(1, || -> Value { panic!("on purpose") }).is_ok()
    }));
    assert!(caught.is_err());
    assert!(add(&map, 1) && add(&map, 2));
    assert_eq!(keys(&map), [2]);
}

/// Looks into the map that it is in when it is dropped.
struct Nosy(std::sync::Weak<KeyMap<u32, Self>>);

impl Evict for Nosy {
    fn may_go(&self) -> bool {
        true
    }
}

impl Drop for Nosy {
    fn drop(&mut self) {
        if let Some(map) = self.0.upgrade() {
            assert!(map.len() <= 1);
        }
    }
}

#[test]
fn values_are_made_and_dropped_outside_the_lock() {
    let map = Arc::new(KeyMap::refusing(1));
    for key in 0..3 {
        let make = || {
            assert!(map.len() <= 1);
            Nosy(Arc::downgrade(&map))
        };
        map.get_or_insert_with(key, make).unwrap();
    }
    map.remove(&2).unwrap();
}

#[test]
fn of_threads_that_make_the_same_key_all_get_one_value_and_nothing_that_is_held_is_forgotten() {
    let map = Arc::new(KeyMap::<u32, AtomicUsizeValue>::refusing(8));
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                let mut done = 0;
                for i in 0..2_000_u32 {
                    let key = (i * 7 + thread) % 16;
                    // Counts in what it got: if that was forgotten meanwhile, the count is lost.
                    if let Ok(value) = map.get_or_insert_with(key, AtomicUsizeValue::default) {
                        value.0.fetch_add(1, Ordering::Relaxed);
                        done += 1;
                    }
                    assert!(map.len() <= 8);
                }
                done
            })
        })
        .collect();
    let done: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    let counted: usize = map.entries().iter().map(|(_, value)| value.0.load(Ordering::Relaxed)).sum();
    assert_eq!(counted, done);
}

/// May go only while nothing was counted.
#[derive(Default)]
struct AtomicUsizeValue(AtomicUsize);

impl Evict for AtomicUsizeValue {
    fn may_go(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Add(u32),
    Get(u32),
    Pin(u32, bool),
    Remove(u32),
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0_u32..10;
    prop_oneof![
        4 => key.clone().prop_map(Op::Add),
        2 => key.clone().prop_map(Op::Get),
        3 => (key.clone(), any::<bool>()).prop_map(|(key, on)| Op::Pin(key, on)),
        1 => key.prop_map(Op::Remove),
    ]
}

/// The obvious: keys from the oldest to the youngest, each with its pin, and whether it may have been found pinned since it was used.
#[derive(Debug, Default)]
struct Model(Vec<(u32, bool, bool)>);

impl Model {
    fn at(&self, key: u32) -> Option<usize> {
        self.0.iter().position(|entry| entry.0 == key)
    }

    fn touch(&mut self, key: u32) -> bool {
        let Some(at) = self.at(key) else { return false };
        let (key, pinned, _) = self.0.remove(at);
        self.0.push((key, pinned, false));
        true
    }

    fn keys(&self) -> Vec<u32> {
        let mut keys: Vec<_> = self.0.iter().map(|entry| entry.0).collect();
        keys.sort_unstable();
        keys
    }

    /// Checks what became of a new key, by the keys that are there now.
    fn add(&mut self, key: u32, capacity: usize, was_added: bool, now: &[u32]) -> Result<(), String> {
        if self.touch(key) {
            return was_added.then_some(()).ok_or_else(|| "it was there".into());
        }
        if self.0.len() == capacity {
            let may_go = self.0.iter().any(|entry| !entry.1);
            if may_go != was_added {
                return Err(format!("{self:?}: {was_added}"));
            }
            if !was_added {
                self.0.iter_mut().for_each(|entry| entry.2 = true);
                return Ok(());
            }
            let gone: Vec<_> = (0..capacity).filter(|&at| !now.contains(&self.0[at].0)).collect();
            let [gone] = *gone else { return Err(format!("{gone:?} went")) };
            let (_, pinned, found) = self.0[gone];
            let oldest = self.0.iter().position(|entry| !entry.1 && !entry.2);
            // One that was found pinned before, or the oldest of the others.
            if pinned || !(found || oldest == Some(gone)) {
                return Err(format!("{gone} of {self:?}"));
            }
            let passed = if found { capacity } else { gone };
            self.0[..passed].iter_mut().filter(|entry| entry.1).for_each(|entry| entry.2 = true);
            self.0.remove(gone);
        }
        self.0.push((key, false, false));
        Ok(())
    }
}

#[test]
fn a_key_of_any_length_is_bounded_and_stays_another_than_all_others() {
    for key in ["", "k", &"k".repeat(MAX_KEY)] {
        assert_eq!(bounded_key(key), key);
    }
    let long = "ü".repeat(100_000);
    let bounded = bounded_key(&long);
    assert!(bounded.len() <= MAX_KEY && bounded.starts_with(&"ü".repeat(100)), "{bounded}");
    assert_eq!((bounded_key(&long), bounded_key(&bounded)), (bounded.clone(), bounded.clone()));
    assert_ne!(bounded_key(&long[2..]), bounded);
}

proptest! {
    #[test]
    fn it_does_what_an_obvious_model_does(capacity in 1_usize..6, ops in prop::collection::vec(op(), 1..200)) {
        let map = KeyMap::<u32, Value>::refusing(capacity);
        let mut model = Model::default();
        for op in ops {
            match op {
                Op::Add(key) => {
                    let was_added = add(&map, key);
                    prop_assert_eq!(model.add(key, capacity, was_added, &keys(&map)), Ok(()));
                }
                Op::Get(key) => prop_assert_eq!(map.get(&key).is_some(), model.touch(key)),
                Op::Pin(key, on) => {
                    if let Some((_, value)) = map.entries().into_iter().find(|(it, _)| *it == key) {
                        value.pin(on);
                    }
                    if let Some(at) = model.at(key) { model.0[at].1 = on; }
                }
                Op::Remove(key) => {
                    let at = model.at(key);
                    prop_assert_eq!(map.remove(&key).is_some(), at.is_some());
                    if let Some(at) = at { model.0.remove(at); }
                }
            }
            prop_assert_eq!(keys(&map), model.keys());
        }
    }
}
