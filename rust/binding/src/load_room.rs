//! Room for what is loaded of stored responses, which callers share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use pyo3::prelude::*;

/// A body is there as it is, and as what an upstream is sent of it.
const FORMS_OF_A_BODY: usize = 2;

/// Bytes that are taken of the room.
#[derive(Default)]
struct Taken {
    all: usize,
    by_caller: HashMap<Arc<str>, usize>,
}

impl Taken {
    fn give_back(&mut self, caller: &str, bytes: usize) {
        self.all = self.all.saturating_sub(bytes);
        if let Some(own) = self.by_caller.get_mut(caller) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                self.by_caller.remove(caller);
            }
        }
    }
}

struct Room {
    bytes: usize,
    taken: Mutex<Taken>,
}

impl Room {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Two sums, which no step leaves half done.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one caller has taken of the room; given back when this is dropped.
pub(crate) struct Share {
    room: Arc<Room>,
    caller: Arc<str>,
    bytes: AtomicUsize,
    /// Of these, those that bodies take.
    in_bodies: AtomicUsize,
}

impl Share {
    fn take(room: &Arc<Room>, caller: &str, bytes: usize) -> Option<Self> {
        let mut taken = room.taken();
        let left = room.bytes.saturating_sub(taken.all);
        let own = taken.by_caller.get(caller).copied().unwrap_or(0);
        // Nobody who has some already takes more than is left for others; and one that is larger than the room is
        // loaded alone.
        let fits = match own {
            0 => bytes <= left || taken.all == 0,
            own => own.saturating_add(bytes) <= left,
        };
        if !fits {
            return None;
        }
        let caller: Arc<str> = caller.into();
        taken.all = taken.all.saturating_add(bytes);
        taken
            .by_caller
            .insert(Arc::clone(&caller), own.saturating_add(bytes));
        drop(taken);
        let room = Arc::clone(room);
        Some(Share {
            room,
            caller,
            bytes: AtomicUsize::new(bytes),
            in_bodies: AtomicUsize::new(0),
        })
    }

    /// Gives back what no body takes.
    fn shrink(&self) {
        let mut taken = self.room.taken();
        let bytes = self.bytes.load(Ordering::Relaxed);
        let kept = self.in_bodies.load(Ordering::Relaxed).min(bytes);
        self.bytes.store(kept, Ordering::Relaxed);
        taken.give_back(&self.caller, bytes - kept);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        self.room.taken().give_back(&self.caller, bytes);
    }
}

struct Held {
    body: Bytes,
    _share: Arc<Share>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[pyclass(name = "LoadRoom", module = "sluicegate._core", frozen)]
pub(crate) struct PyLoadRoom(Arc<Room>);

#[pymethods]
impl PyLoadRoom {
    #[new]
    fn new(bytes: usize) -> Self {
        let taken = Mutex::default();
        PyLoadRoom(Arc::new(Room { bytes, taken }))
    }

    fn take(&self, caller: &str, bytes: usize) -> Option<PyLoadShare> {
        let share = Share::take(&self.0, caller, bytes)?;
        Some(PyLoadShare(Mutex::new(Some(Arc::new(share)))))
    }

    #[getter]
    fn taken(&self) -> usize {
        self.0.taken().all
    }
}

#[pyclass(name = "LoadShare", module = "sluicegate._core", frozen)]
pub(crate) struct PyLoadShare(Mutex<Option<Arc<Share>>>);

#[pymethods]
impl PyLoadShare {
    fn release(&self) {
        let mut share = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = share.take() {
            share.shrink();
        }
    }
}

impl PyLoadShare {
    /// `body`, which has the share for as long as any part of it is there.
    pub(crate) fn held_by(&self, body: Bytes) -> Bytes {
        let share = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match share.clone() {
            None => body,
            Some(share) => {
                let bytes = body.len().saturating_mul(FORMS_OF_A_BODY);
                share.in_bodies.fetch_add(bytes, Ordering::Relaxed);
                Bytes::from_owner(Held {
                    body,
                    _share: share,
                })
            }
        }
    }
}
