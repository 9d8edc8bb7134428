//! Windows and limits beside plain references that remember each request.

use proptest::prelude::*;
use sluicegate_limits::{
    Amount, Calendar, Counter, Demand, Held, Limit, Moment, Resource, Span, Unit, Used, Window,
    admit, settle,
};

/// All of it on one day.
fn at(seconds: f64) -> Moment {
    let span = Span {
        began: 1_000_000_000,
        ends: 2e9,
    };
    Moment {
        monotonic: 1000.0 + seconds,
        wall: 1.5e9 + seconds,
        spans: [span; 3],
    }
}

/// Seconds that pass: none, some within a slice, or a whole window.
fn pauses() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        0.0..0.4,
        Just(2.0),
        4.9..7.1,
        Just(61.0),
        59.0..67.0
    ]
}

proptest! {
    #[test]
    fn no_minute_ever_has_more_than_its_limit(
        steps in prop::collection::vec((pauses(), 1..10_i128), 1..400)
    ) {
        let limit = 40;
        let mut window = Window::new(Unit::Minute);
        let mut admitted: Vec<(f64, Amount)> = Vec::new();
        let mut now = 0.0;
        for (pause, amount) in steps {
            now += pause;
            window.advance(&at(now));
            let since = |seconds: f64| -> Amount {
                let lately = admitted.iter().filter(|(when, _)| now - when < seconds);
                lately.map(|(_, size)| size).sum()
            };
            if window.used() + amount <= limit {
                prop_assert!(since(60.0) + amount <= limit);
                window.add(amount);
                admitted.push((now, amount));
            } else {
                // The slice in which the oldest of them lies counts whole.
                prop_assert!(since(65.0) + amount > limit);
                let wait = window.wait(amount, limit, &at(now));
                prop_assert!(wait > 0.0);
                window.advance(&at(now + wait + 1e-6));
                prop_assert!(window.used() + amount <= limit);
                now += wait + 1e-6;
            }
        }
    }

    #[test]
    fn what_is_settled_is_what_was_used(
        steps in prop::collection::vec((pauses(), any::<prop::sample::Index>(), 0..20_i128, any::<bool>()), 1..400)
    ) {
        let mut window = Window::new(Unit::Minute);
        let mut running: Vec<i64> = Vec::new();
        let mut settled: Vec<(f64, Amount)> = Vec::new();
        let mut now = 0.0;
        for (pause, which, used, ends) in steps {
            now += pause;
            window.advance(&at(now));
            if ends && !running.is_empty() {
                let place = running.swap_remove(which.index(running.len()));
                window.correct(place, used - 10);
                settled.push((now, used));
            } else {
                running.push(window.add(10));
            }
            prop_assert!(window.used() >= 0);
            // What was used beyond the estimate counts from the end on, however old the request was.
            let lately = settled.iter().filter(|(when, _)| now - when < 60.0);
            let debts: Amount = lately.map(|(_, used)| (used - 10).max(0)).sum();
            prop_assert!(window.used() >= debts);
        }
        window.advance(&at(now + 66.0));
        prop_assert_eq!(window.used(), 0);
    }

    #[test]
    fn counters_equal_a_plain_reference(
        steps in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..100_u8, 1..50_i128, 1..50_i128, 0..90_i128), 1..500
        ),
        times in 1..4_i128,
    ) {
        let limit = |resource, amount, unit| Limit { resource, amount, window: Counter::new(unit) };
        let day = Unit::Calendar(Calendar::Day);
        let limits = [
            limit(Resource::Requests, 80, day),
            limit(Resource::Tokens, 9000, day),
            limit(Resource::Concurrent, 6, Unit::UnderWay),
            limit(Resource::Cost, 5000, day),
        ];
        let now = at(0.0);
        let mut running: Vec<(Vec<Held>, Demand)> = Vec::new();
        let mut expected: [Amount; 4] = [0; 4];
        for (which, what, input, output, really) in steps {
            if what < 45 && !running.is_empty() {
                let (held, demand) = running.swap_remove(which.index(running.len()));
                let used = match what {
                    0..25 => Used { requests: 1, tokens: really, cost: really / 2 },
                    25..35 => Used::default(),
                    _ => Used { requests: 1, tokens: demand.input + demand.output, cost: demand.cost },
                };
                let changes = settle(&limits, &held, &used, &now, times);
                let really = [used.requests, used.tokens, 0, used.cost];
                for (slot, (really, held)) in really.into_iter().zip(&held).enumerate() {
                    let more = really - held.amount;
                    expected[slot] += more * if slot == 2 { 1 } else { times };
                    let told = changes.iter().find(|(position, _)| *position == slot);
                    prop_assert_eq!(told.map_or(0, |(_, change)| change.amount), more);
                }
            } else {
                let demand = Demand { requests: 1, concurrent: 1, input, output, cost: input + output, unlearnt: (input, output) };
                if let Ok(held) = admit(&limits, &demand, &now, times) {
                    for (slot, held) in held.iter().enumerate() {
                        expected[slot] += held.amount * if slot == 2 { 1 } else { times };
                    }
                    // A debt of requests that have ended may stand above the limit; nothing is let in then.
                    prop_assert!(expected[0] <= 80 && expected[1] <= 9000);
                    prop_assert!(expected[2] * times <= 6 && expected[3] <= 5000);
                    running.push((held, demand));
                }
            }
            let used = limits.each_ref().map(|limit| limit.window.at(&now).used());
            prop_assert_eq!(used, expected);
        }
    }
}
