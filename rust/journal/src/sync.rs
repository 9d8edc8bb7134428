//! Writing to the disk: when, and what a test puts in front of it.

use std::fmt;
use std::io;
use std::sync::Arc;

/// When what is stored is written to the disk. A process that dies loses nothing with any of them; a machine that does
/// loses what was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// When the kernel sees fit.
    Never,
    /// Whenever [`Journal::sync`](crate::Journal::sync) is called.
    Called,
    /// Before a record counts as opened or closed.
    Always,
}

/// What is called before anything is written to the disk, in place of which its error counts: tests make a disk slow,
/// or broken, with it.
#[derive(Clone, Default)]
pub struct OnSync(Option<Arc<dyn Fn() -> io::Result<()> + Send + std::marker::Sync>>);

impl OnSync {
    /// `call` is called by each thread that writes.
    pub fn new(call: impl Fn() -> io::Result<()> + Send + std::marker::Sync + 'static) -> Self {
        Self(Some(Arc::new(call)))
    }

    pub(crate) fn call(&self) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |call| call())
    }
}

impl fmt::Debug for OnSync {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("OnSync")
    }
}
