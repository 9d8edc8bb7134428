//! What holds a request against its limits, all of them or none, and gives back what it did not use.
//!
//! A refusal counts nothing. What is reserved at the beginning is settled at the end: with what was really used.

use crate::Amount;
use crate::clock::Moment;
use crate::window::{Counter, Window};

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// How many there are.
    Requests,
    /// Of input and output together.
    Tokens,
    /// 10⁻¹² USD.
    Cost,
    /// Requests under way.
    Concurrent,
}

impl Resource {
    /// All of them.
    pub const ALL: [Resource; 4] = [
        Resource::Requests,
        Resource::Tokens,
        Resource::Cost,
        Resource::Concurrent,
    ];

    /// Its name in a configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Resource::Requests => "requests",
            Resource::Tokens => "tokens",
            Resource::Cost => "cost",
            Resource::Concurrent => "concurrent",
        }
    }
}

/// One limit, bound to what counts for it.
#[derive(Debug, Clone)]
pub struct Limit {
    /// What it limits.
    pub resource: Resource,
    /// How much there may be.
    pub amount: Amount,
    /// How much there is.
    pub window: Counter,
}

impl AsRef<Limit> for Limit {
    fn as_ref(&self) -> &Limit {
        self
    }
}

/// What a request will use, as far as can be told before it runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Demand {
    /// 0 for one that was counted before.
    pub requests: Amount,
    /// 0 for one that runs later.
    pub concurrent: Amount,
    /// Tokens.
    pub input: Amount,
    /// Tokens.
    pub output: Amount,
    /// 10⁻¹² USD.
    pub cost: Amount,
    /// `input` and `output` of a caller of whom nothing is known.
    pub unlearnt: (Amount, Amount),
}

impl Demand {
    /// What it takes of a limit.
    #[must_use]
    pub fn of(&self, resource: Resource) -> Amount {
        match resource {
            Resource::Requests => self.requests,
            Resource::Tokens => self.input + self.output,
            Resource::Cost => self.cost,
            Resource::Concurrent => self.concurrent,
        }
    }
}

/// What a request has used.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    /// 0 where it did not run.
    pub requests: Amount,
    /// Of input and output.
    pub tokens: Amount,
    /// 10⁻¹² USD; 0 where that is not known.
    pub cost: Amount,
}

/// What a request holds of one limit, or what is to be added there, or, below zero, taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Where it was counted, as the limit's window has it.
    pub place: i64,
    /// How much.
    pub amount: Amount,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Excess {
    /// The position of the limit that refuses it longest.
    pub limit: usize,
    /// Seconds until the request would be admitted, if nothing else came.
    pub wait: f64,
    /// It is larger than the limit itself.
    pub never: bool,
    /// Of the limit.
    pub used: Amount,
    /// What is learnt of the caller refuses it: with nothing known, it would be let in.
    pub by_estimate: bool,
}

/// All of the limits let `demand` in, and what it holds of each is given; or the one that does so last refuses it, and
/// nothing is counted.
///
/// `times`: as if so many such requests had come at once.
///
/// # Errors
///
/// The limit that refuses it.
pub fn admit(
    limits: &[impl AsRef<Limit>],
    demand: &Demand,
    now: &Moment,
    times: Amount,
) -> Result<Vec<Held>, Excess> {
    match excess(limits, demand, now, times) {
        Some(excess) => Err(excess),
        None => Ok(take(limits, demand, now, times)),
    }
}

/// The limit that refuses `demand` longest, if any does. Nothing is counted.
#[must_use]
pub fn excess(
    limits: &[impl AsRef<Limit>],
    demand: &Demand,
    now: &Moment,
    times: Amount,
) -> Option<Excess> {
    let mut over = Vec::new();
    for (position, limit) in limits.iter().map(AsRef::as_ref).enumerate() {
        let used = limit.window.at(now).used();
        if !fits(limit, used, demand, times) {
            over.push((position, used));
        }
    }
    refused(limits, &over, demand, now, times)
}

fn fits(limit: &Limit, mut used: Amount, demand: &Demand, times: Amount) -> bool {
    let (resource, most) = (limit.resource, limit.amount);
    let amount = demand.of(resource);
    let sure = match resource {
        Resource::Cost => return used < most,
        Resource::Tokens => demand.input,
        Resource::Requests => amount,
        Resource::Concurrent => {
            // The window counts what runs here once, however many others there are.
            used *= times;
            amount
        }
    };
    // What the output may be is a guess: it refuses nobody who is alone in the window.
    used + times * amount <= most || (used <= 0 && sure <= most)
}

/// What `demand` holds of a limit of which so much is used.
fn reserved(limit: &Limit, used: Amount, demand: &Demand, times: Amount) -> Amount {
    let amount = demand.of(limit.resource);
    if limit.resource == Resource::Cost {
        amount.min((limit.amount - used).max(0) / times)
    } else {
        amount
    }
}

/// Count `demand` in every window; gives what it holds of each limit.
#[must_use]
pub fn take(
    limits: &[impl AsRef<Limit>],
    demand: &Demand,
    now: &Moment,
    times: Amount,
) -> Vec<Held> {
    let count = |limit: &Limit| {
        let mut window = limit.window.at(now);
        let amount = reserved(limit, window.used(), demand, times);
        let place = window.add(amount * counted(limit, times));
        Held { place, amount }
    };
    limits.iter().map(AsRef::as_ref).map(count).collect()
}

/// How often a window counts what one request holds.
fn counted(limit: &Limit, times: Amount) -> Amount {
    if limit.resource == Resource::Concurrent {
        1
    } else {
        times
    }
}

/// Of the limits that refuse (`over`: their positions, each with what is used of it), the one that does so longest;
/// none where there is none.
#[must_use]
pub fn refused(
    limits: &[impl AsRef<Limit>],
    over: &[(usize, Amount)],
    demand: &Demand,
    now: &Moment,
    times: Amount,
) -> Option<Excess> {
    let (input, output) = demand.unlearnt;
    let unlearnt = Demand {
        input,
        output,
        ..*demand
    };
    let mut by_estimate = true;
    let mut worst: Option<Excess> = None;
    for &(position, used) in over {
        let limit = limits.get(position)?.as_ref();
        by_estimate &= fits(limit, used, &unlearnt, times);
        let (never, wanted) = match limit.resource {
            Resource::Tokens => (
                demand.input > limit.amount,
                demand.of(Resource::Tokens).min(limit.amount),
            ),
            _ => (false, 1),
        };
        let excess = Excess {
            limit: position,
            wait: limit.window.lock().wait(wanted, limit.amount, now),
            never,
            used,
            by_estimate: false,
        };
        if worst.is_none_or(|worst| (excess.never, excess.wait) > (worst.never, worst.wait)) {
            worst = Some(excess);
        }
    }
    worst.map(|worst| Excess {
        by_estimate,
        ..worst
    })
}

/// A request is over that held so much of each limit, and has used this. Gives the positions of the limits of which it
/// used more or less, with what that is for one of the `times` that it was counted.
pub fn settle(
    limits: &[impl AsRef<Limit>],
    held: &[Held],
    used: &Used,
    now: &Moment,
    times: Amount,
) -> Vec<(usize, Held)> {
    let mut changes = Vec::new();
    let limits = limits.iter().map(AsRef::as_ref);
    for (position, (limit, held)) in limits.zip(held).enumerate() {
        let really = match limit.resource {
            Resource::Tokens => used.tokens,
            Resource::Requests => used.requests,
            Resource::Cost => used.cost,
            Resource::Concurrent => 0,
        };
        let amount = really - held.amount;
        if amount != 0 {
            let mut window = limit.window.at(now);
            let place = Window::correct(&mut window, held.place, amount * counted(limit, times));
            changes.push((position, Held { place, amount }));
        }
    }
    changes
}
