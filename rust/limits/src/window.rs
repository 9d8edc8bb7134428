//! How much has been used: within the last minute or hour, since a day began, or at this moment.
//!
//! A sliding window never admits more than its limit, whatever the moment it is looked at: it counts in twelve slices
//! and the one in progress, and a slice counts whole for as long as any of it lies within the window. So room comes
//! back up to one twelfth of the window late, and never early. A calendar window is what a report of that day, week or
//! month adds up.

use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Amount;
use crate::clock::{Calendar, Moment};

const SLICES: i64 = 12;
const KEPT: i64 = SLICES + 1;

/// How long something counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// The last 60 seconds.
    Minute,
    /// The last 60 minutes.
    Hour,
    /// Since the day, the week or the month began.
    Calendar(Calendar),
    /// As long as it is under way.
    UnderWay,
}

impl FromStr for Unit {
    type Err = ();

    /// By its name in a configuration; what is under way has none.
    fn from_str(name: &str) -> Result<Self, ()> {
        Ok(match name {
            "minute" => Unit::Minute,
            "hour" => Unit::Hour,
            "day" => Unit::Calendar(Calendar::Day),
            "week" => Unit::Calendar(Calendar::Week),
            "month" => Unit::Calendar(Calendar::Month),
            "" => Unit::UnderWay,
            _ => return Err(()),
        })
    }
}

/// A window that several limits may count in.
#[derive(Debug, Clone)]
pub struct Counter(Arc<Mutex<Window>>);

impl Counter {
    /// Nothing is used of it.
    #[must_use]
    pub fn new(unit: Unit) -> Self {
        Self(Arc::new(Mutex::new(Window::new(unit))))
    }

    /// The window, for a moment: whoever holds it must not wait for anything.
    pub fn lock(&self) -> MutexGuard<'_, Window> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The window as it is now.
    pub fn at(&self, now: &Moment) -> MutexGuard<'_, Window> {
        let mut window = self.lock();
        window.advance(now);
        window
    }
}

/// One count.
#[derive(Debug)]
pub struct Window {
    used: Amount,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Sliding(Box<Slices>),
    Calendar {
        unit: Calendar,
        began: i64,
        ends: f64,
    },
    UnderWay,
}

#[derive(Debug)]
struct Slices {
    seconds: f64,
    /// Of the one in progress.
    number: i64,
    amounts: [Amount; KEPT as usize],
}

impl Slices {
    /// Each of so many seconds.
    fn of_seconds(seconds: f64) -> Self {
        Slices {
            seconds,
            number: 0,
            amounts: [0; KEPT as usize],
        }
    }

    fn of(&self, place: i64) -> Amount {
        self.amounts[index(place)]
    }

    fn counts(&self, place: i64) -> bool {
        (0..KEPT).contains(&(self.number - place))
    }

    #[allow(clippy::cast_possible_truncation)] // Seconds since 1970, in slices.
    fn number_at(&self, seconds: f64) -> i64 {
        (seconds / self.seconds).floor() as i64
    }

    /// Seconds until the slice counts no more.
    #[allow(clippy::cast_precision_loss)] // 53 bits fit.
    fn gone(&self, place: i64, now: &Moment) -> f64 {
        ((place + KEPT) as f64 * self.seconds - now.monotonic).max(0.0)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // It is from 0 to 12.
fn index(place: i64) -> usize {
    place.rem_euclid(KEPT) as usize
}

impl Window {
    /// Nothing is used of it.
    #[must_use]
    pub fn new(unit: Unit) -> Self {
        let kind = match unit {
            Unit::Minute => Kind::Sliding(Box::new(Slices::of_seconds(60.0 / 12.0))),
            Unit::Hour => Kind::Sliding(Box::new(Slices::of_seconds(3600.0 / 12.0))),
            Unit::Calendar(unit) => Kind::Calendar {
                unit,
                began: 0,
                ends: 0.0,
            },
            Unit::UnderWay => Kind::UnderWay,
        };
        Window { used: 0, kind }
    }

    /// What is used, as of the last `advance`.
    #[must_use]
    pub fn used(&self) -> Amount {
        self.used
    }

    /// How many seconds a slice has; None where there are none.
    #[must_use]
    pub fn slice(&self) -> Option<f64> {
        match &self.kind {
            Kind::Sliding(slices) => Some(slices.seconds),
            _ => None,
        }
    }

    /// When the day, the week or the month began, and when it ends: seconds since 1970, UTC. Before the first
    /// `advance` 0, and None of other windows.
    #[must_use]
    pub fn span(&self) -> Option<(i64, f64)> {
        match self.kind {
            Kind::Calendar { began, ends, .. } => Some((began, ends)),
            _ => None,
        }
    }

    /// Forget what no longer counts.
    pub fn advance(&mut self, now: &Moment) {
        match &mut self.kind {
            Kind::Sliding(slices) => {
                let number = slices.number_at(now.monotonic);
                if number - slices.number >= KEPT {
                    slices.amounts.fill(0);
                    self.used = 0;
                } else {
                    for place in slices.number + 1..=number {
                        self.used -= std::mem::take(&mut slices.amounts[index(place)]);
                    }
                }
                slices.number = slices.number.max(number);
            }
            Kind::Calendar { unit, began, ends } => {
                let span = now.spans[*unit as usize];
                if span.ends > *ends {
                    (*began, *ends) = (span.began, span.ends);
                    self.used = 0;
                }
            }
            Kind::UnderWay => {}
        }
    }

    /// Count `amount` now; gives the place for `correct`.
    pub fn add(&mut self, amount: Amount) -> i64 {
        self.used += amount;
        match &mut self.kind {
            Kind::Sliding(slices) => {
                slices.amounts[index(slices.number)] += amount;
                slices.number
            }
            Kind::Calendar { began, .. } => *began,
            Kind::UnderWay => 0,
        }
    }

    /// What was counted at `place` was really `amount` more, or less. Gives the place of that.
    pub fn correct(&mut self, place: i64, amount: Amount) -> i64 {
        match &mut self.kind {
            // A debt counts from now on, or a long reply would be forgotten as soon as it has ended.
            Kind::Sliding(_) if amount > 0 => return self.add(amount),
            Kind::Sliding(slices) if slices.counts(place) => {
                slices.amounts[index(place)] += amount;
            }
            // A request belongs to the window in which it was admitted.
            Kind::Calendar { began, .. } if *began == place => {}
            Kind::UnderWay => {}
            _ => return place,
        }
        self.used += amount;
        place
    }

    /// The place of what another process counted at the time `at` (seconds since 1970, UTC); None where it counts no
    /// more.
    #[must_use]
    pub fn recall(&self, at: f64, now: &Moment) -> Option<i64> {
        match &self.kind {
            Kind::Sliding(slices) => {
                let place = slices.number_at(now.monotonic - (now.wall - at));
                let place = place.min(slices.number);
                slices.counts(place).then_some(place)
            }
            Kind::Calendar { began, .. } => Some(*began),
            Kind::UnderWay => None,
        }
    }

    /// At least `amount` is counted at `place`, which `recall` gave.
    pub fn raise_to(&mut self, place: i64, amount: Amount) {
        let known = match &self.kind {
            Kind::Sliding(slices) if slices.counts(place) => slices.of(place),
            Kind::Calendar { began, .. } if *began == place => self.used,
            _ => return,
        };
        let more = (amount - known).max(0);
        self.used += more;
        if let Kind::Sliding(slices) = &mut self.kind {
            slices.amounts[index(place)] += more;
        }
    }

    /// So much counts in these slices, and nothing else; the one with this number is in progress.
    pub fn load_slices(&mut self, number: i64, amounts: &[(i64, Amount)]) {
        if let Kind::Sliding(slices) = &mut self.kind {
            slices.number = number;
            slices.amounts.fill(0);
            for &(place, amount) in amounts {
                if slices.counts(place) {
                    slices.amounts[index(place)] = amount;
                }
            }
            self.used = slices.amounts.iter().sum();
        }
    }

    /// So much is used of the day, the week or the month that began then.
    pub fn load_total(&mut self, when: i64, used: Amount) {
        if let Kind::Calendar { began, .. } = self.kind
            && began == when
        {
            self.used = used;
        }
    }

    /// Seconds until `amount` more would be within `limit`, if nothing else came; the window's length where no time
    /// helps.
    #[must_use]
    pub fn wait(&self, amount: Amount, limit: Amount, now: &Moment) -> f64 {
        match &self.kind {
            Kind::Sliding(slices) => {
                let mut left = self.used;
                let enough = |place: &i64| {
                    left -= slices.of(*place);
                    left + amount <= limit
                };
                let place = (slices.number - SLICES..=slices.number).find(enough);
                slices.gone(place.unwrap_or(slices.number), now)
            }
            Kind::Calendar { .. } => self.reset(now),
            Kind::UnderWay => 1.0,
        }
    }

    /// Seconds until nothing of what is counted by now counts.
    #[must_use]
    pub fn reset(&self, now: &Moment) -> f64 {
        match &self.kind {
            Kind::Sliding(slices) => {
                let mut places = (0..KEPT).map(|behind| slices.number - behind);
                let last = places.find(|&place| slices.of(place) != 0);
                last.map_or(0.0, |place| slices.gone(place, now))
            }
            Kind::Calendar { ends, .. } => (ends - now.wall).max(0.0),
            Kind::UnderWay => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Span;

    fn at(seconds: f64) -> Moment {
        Moment {
            monotonic: 1000.0 + seconds,
            wall: 5e8 + seconds,
            ..Moment::default()
        }
    }

    /// In days that begin each 86,400 seconds after the first moment.
    fn on_day(seconds: f64) -> Moment {
        let day = (seconds / 86_400.0).floor();
        #[allow(clippy::cast_possible_truncation)]
        let began = day as i64 * 86_400 + 500_000_000;
        let ends = 5e8 + (day + 1.0) * 86_400.0;
        Moment {
            spans: [Span { began, ends }; 3],
            ..at(seconds)
        }
    }

    #[test]
    fn what_was_used_leaves_after_the_minute_and_at_most_a_twelfth_late() {
        let mut window = Window::new(Unit::Minute);
        window.advance(&at(3.0));
        window.add(7);
        window.advance(&at(62.9));
        assert_eq!(window.used(), 7);
        assert_eq!(window.reset(&at(62.9)), 1065.0 - 1062.9);
        window.advance(&at(68.1));
        assert_eq!((window.used(), window.reset(&at(68.1))), (0, 0.0));
    }

    #[test]
    fn a_debt_counts_from_when_it_is_known() {
        let mut window = Window::new(Unit::Minute);
        window.advance(&at(0.0));
        let place = window.add(10);
        window.advance(&at(50.0));
        window.correct(place, 90);
        window.advance(&at(100.0));
        assert_eq!(window.used(), 90);
    }

    #[test]
    fn what_is_given_back_of_a_slice_that_is_gone_changes_nothing() {
        let mut window = Window::new(Unit::Minute);
        window.advance(&at(0.0));
        let place = window.add(10);
        window.advance(&at(70.0));
        assert_eq!(window.correct(place, -10), place);
        assert_eq!(window.used(), 0);
    }

    #[test]
    fn the_wait_is_until_there_is_room() {
        let mut window = Window::new(Unit::Minute);
        for second in [0.0, 10.0, 20.0, 30.0, 40.0] {
            window.advance(&at(second));
            window.add(10);
        }
        window.advance(&at(50.0));
        let wait = window.wait(10, 50, &at(50.0));
        window.advance(&at(50.0 + wait - 0.1));
        assert!(window.used() + 10 > 50);
        window.advance(&at(50.0 + wait + 0.001));
        assert!(window.used() + 10 <= 50);
        // Where no time helps it is the window's length.
        assert!(window.wait(99, 50, &at(50.0 + wait)) > 50.0);
    }

    #[test]
    fn a_request_belongs_to_the_day_in_which_it_was_admitted() {
        let mut window = Window::new(Unit::Calendar(Calendar::Day));
        window.advance(&on_day(0.0));
        let place = window.add(10);
        assert_eq!(window.correct(place, 5), place);
        assert_eq!(window.used(), 15);
        window.advance(&on_day(90_000.0));
        assert_eq!(window.used(), 0);
        window.correct(place, 5);
        assert_eq!(window.used(), 0);
        assert_eq!(window.reset(&on_day(90_000.0)), 2.0 * 86_400.0 - 90_000.0);
        window.add(1);
        window.advance(&on_day(0.0));
        assert_eq!(
            window.used(),
            1,
            "a clock that is set back begins no day again"
        );
    }

    #[test]
    fn the_ledger_raises_a_window_and_never_lowers_it() {
        let mut window = Window::new(Unit::Calendar(Calendar::Week));
        window.advance(&on_day(0.0));
        let place = window.recall(5e8, &on_day(0.0)).unwrap();
        window.raise_to(place, 50);
        window.raise_to(place, 20);
        window.raise_to(place - 86_400, 99);
        assert_eq!(window.used(), 50);
        window.load_total(place, 7);
        window.load_total(place + 1, 9);
        assert_eq!(window.used(), 7);
    }

    #[test]
    fn what_another_process_counted_counts_for_as_long_as_it_would_have() {
        let mut window = Window::new(Unit::Minute);
        window.advance(&at(0.0));
        let recalled = |window: &Window, ago: f64| window.recall(5e8 - ago, &at(0.0));
        assert_eq!(recalled(&window, 70.0), None);
        let place = recalled(&window, 31.0).unwrap();
        window.raise_to(place, 5);
        window.raise_to(place, 3);
        // From another clock's future, it is now.
        let now = recalled(&window, -500.0).unwrap();
        window.raise_to(now, 2);
        assert_eq!(window.used(), 7);
        window.advance(&at(36.0));
        assert_eq!(window.used(), 2);
    }

    #[test]
    fn slices_that_are_loaded_are_all_that_counts() {
        let mut window = Window::new(Unit::Hour);
        window.advance(&at(0.0));
        window.add(99);
        window.load_slices(100, &[(100, 1), (95, 2), (87, 4), (88, 8), (101, 16)]);
        assert_eq!(window.used(), 11);
        assert_eq!(window.slice(), Some(300.0));
    }

    #[test]
    fn what_is_under_way_has_no_time() {
        let mut window = Window::new(Unit::UnderWay);
        let place = window.add(2);
        window.advance(&at(1e9));
        window.correct(place, -1);
        assert_eq!(window.used(), 1);
        assert_eq!(
            (window.wait(1, 1, &at(0.0)), window.reset(&at(0.0))),
            (1.0, 0.0)
        );
        assert_eq!(window.recall(5e8, &at(0.0)), None);
    }
}
