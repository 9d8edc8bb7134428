//! How much may be used: windows that count, limits that hold requests against them, and what is left, for clients.
//!
//! Requests pass one after the other: one thread decides, and a [`Counter`] is locked only so that others may look.
//!
//! | file | what |
//! | --- | --- |
//! | `clock` | the present for all windows, and when the days, weeks and months around it begin and end |
//! | `window` | what was used within a minute or an hour, since a day began, or is under way |
//! | `holding` | a request against its limits, all of them or none; what it used of what it reserved |
//! | `estimates` | how many tokens a request will use, learnt from those before it |
//! | `left` | what is left of limits, as headers say it |

mod clock;
mod estimates;
mod holding;
mod left;
mod window;

pub use clock::{Calendar, Clock, Moment, Span};
pub use estimates::{Estimates, Whose};
pub use holding::{
    Demand, Excess, Held, Limit, Resource, Used, admit, excess, refused, settle, take,
};
pub use left::{Form, Left, left};
pub use window::{Counter, Unit, Window};

/// Requests, tokens, or 10⁻¹² USD. The largest limit of cost has 90 bits, and what requests use fewer than 66 each: no
/// sum of them overflows.
pub type Amount = i128;
