//! The journal of one process, and the entry of one request.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::entry::Entry;
use crate::layout::{self, SHIPPED, STATE, VOID, read_all};
use crate::live::open_in;
#[cfg(doc)]
use crate::record::Ending;
use crate::record::{Opening, OpeningTexts, Row};
use crate::segment::{
    SEGMENT_BYTES, Segment, bytes_of, remove_unfinished, segments_in, seize, sync_folder,
};
use crate::sync::{OnSync, Sync};

/// Where the journal is, and how large it may become.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its folder, made where it is not there; nobody else may look into it.
    pub folder: PathBuf,
    /// Bytes of all segments in the folder; at least two have room.
    pub bytes: u64,
    /// See [`Sync`].
    pub sync: Sync,
    /// See [`OnSync`]; nothing by default.
    pub on_sync: OnSync,
}

/// Why no record could be opened.
#[derive(Debug)]
pub enum Full {
    /// As much waits as may.
    Bytes,
    /// There can be no other segment.
    Disk(io::Error),
    /// The record could not be written to the disk, with [`Sync::Always`].
    Unsynced(io::Error),
}

/// What is used in the time between two batches, at some 50,000 requests a second.
const MOST_SPARES: u64 = 4;

/// After a failure, for so long neither another segment nor another sync is tried: whoever opens records must not wait
/// for that.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Default)]
struct Files {
    current: Option<Arc<Segment>>,
    /// Those that are next.
    spares: Vec<Arc<Segment>>,
    /// Those that no more records are opened in.
    retired: Vec<Arc<Segment>>,
    failed: Option<Instant>,
    /// Nothing is kept for later.
    closed: bool,
}

/// A record that is over, and not in the ledger yet.
pub(crate) struct Over {
    pub(crate) segment: Arc<Segment>,
    pub(crate) at: usize,
    pub(crate) length: usize,
}

pub(crate) struct Shared {
    settings: Settings,
    files: Mutex<Files>,
    over: Mutex<VecDeque<Over>>,
    /// Records that are open.
    pub(crate) open: AtomicUsize,
    unsynced: Mutex<Unsynced>,
    /// The last sync failed.
    is_failing: AtomicBool,
}

#[derive(Default)]
struct Unsynced {
    /// When the last sync failed, if it did.
    failed: Option<Instant>,
    /// The first failure that nobody has been told of.
    untold: Option<io::Error>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while it was held cannot leave it inconsistent: every change is a plain assignment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// The record is over: it can be taken.
    pub(crate) fn push(&self, over: Over) {
        lock(&self.over).push_back(over);
    }

    /// Nothing more comes of a record in `segment`.
    pub(crate) fn release(&self, segment: &Segment) {
        if segment.live.fetch_sub(1, Ordering::AcqRel) == 1
            && segment.retired.load(Ordering::Acquire)
        {
            self.reap();
        }
    }

    /// No more records are opened in `segment`.
    fn retire(&self, segment: &Arc<Segment>) {
        let mut files = lock(&self.files);
        if let Some(current) = files
            .current
            .take_if(|current| Arc::ptr_eq(current, segment))
        {
            current.retired.store(true, Ordering::Release);
            files.retired.push(current);
        }
    }

    /// Use again, or else delete, what holds nothing any more.
    fn reap(&self) {
        let mut files = lock(&self.files);
        let empty: Vec<_> = files
            .retired
            .extract_if(.., |segment| segment.live.load(Ordering::Acquire) == 0)
            .collect();
        drop(files);
        for segment in empty {
            segment.empty();
            self.keep(segment);
        }
    }

    /// `segment` is one of the next, unless there are enough: its pages are there already, which is most of what a
    /// record in a new one costs.
    fn keep(&self, segment: Arc<Segment>) {
        // Other processes want some of the room, too.
        let most = MOST_SPARES
            .min(self.settings.bytes / SEGMENT_BYTES / 4)
            .max(1);
        let mut files = lock(&self.files);
        if !files.closed && (files.spares.len() as u64) < most && !segment.has_failed() {
            files.spares.push(segment);
        } else {
            drop(files);
            let _ = fs::remove_file(&segment.path);
        }
    }

    /// What was stored in `segment` counts.
    ///
    /// # Errors
    /// Where it is not on the disk, and has to be.
    pub(crate) fn stored(&self, segment: &Arc<Segment>) -> io::Result<()> {
        segment.store();
        if self.settings.sync != Sync::Always {
            return Ok(());
        }
        if segment.has_failed() {
            // That was noted, and others are written to meanwhile.
            let error = || io::Error::other("what else is in its file could not be written");
            lock(&self.unsynced).untold.get_or_insert_with(error);
            return Err(error());
        }
        self.note(self.sync(segment))
    }

    /// Have `segment` on the disk. One that cannot be written is left.
    fn sync(&self, segment: &Arc<Segment>) -> io::Result<()> {
        let done = segment.sync(&self.settings.on_sync);
        if done.is_err() {
            self.retire(segment);
        }
        done
    }

    /// Note how a sync ended.
    fn note(&self, done: io::Result<()>) -> io::Result<()> {
        match &done {
            Ok(()) => self.is_failing.store(false, Ordering::Release),
            Err(error) => {
                let mut unsynced = lock(&self.unsynced);
                unsynced.failed = Some(Instant::now());
                let untold = || io::Error::new(error.kind(), error.to_string());
                unsynced.untold.get_or_insert_with(untold);
                self.is_failing.store(true, Ordering::Release);
            }
        }
        done
    }

    /// Not so soon after a sync that failed.
    fn may_sync(&self) -> Result<(), Full> {
        if self.settings.sync != Sync::Always || !self.is_failing.load(Ordering::Acquire) {
            return Ok(());
        }
        match lock(&self.unsynced).failed {
            Some(at) if at.elapsed() < PAUSE => Err(Full::Unsynced(io::Error::other(
                "a sync failed a moment ago",
            ))),
            _ => Ok(()),
        }
    }

    /// Ask the disk whether it takes anything again.
    fn probe(&self) -> io::Result<()> {
        let segment = match self.room(0) {
            Ok((segment, _)) => segment,
            Err(Full::Bytes) => return Err(io::Error::other("there is no room to try in")),
            Err(Full::Disk(error) | Full::Unsynced(error)) => return Err(error),
        };
        let done = segment.probe(&self.settings.on_sync);
        if done.is_err() {
            self.retire(&segment);
        }
        self.release(&segment);
        self.note(done)
    }

    fn segment(&self) -> Result<Segment, Full> {
        let Settings { folder, bytes, .. } = &self.settings;
        let there = segments_in(folder).map_err(Full::Disk)?.len() as u64;
        if (there + 1).saturating_mul(SEGMENT_BYTES) > (*bytes).max(2 * SEGMENT_BYTES) {
            return Err(Full::Bytes);
        }
        let segment = Segment::create(folder).map_err(Full::Disk)?;
        if self.settings.sync != Sync::Never {
            sync_folder(folder).map_err(Full::Disk)?;
        }
        Ok(segment)
    }

    fn room(&self, length: usize) -> Result<(Arc<Segment>, usize), Full> {
        let mut files = lock(&self.files);
        loop {
            if let Some(current) = &files.current
                && let Some(at) = current.room(length)
            {
                return Ok((Arc::clone(current), at));
            }
            let next = match files.spares.pop() {
                Some(spare) => spare,
                None => self.another(&mut files.failed)?,
            };
            if let Some(full) = files.current.replace(next) {
                full.retired.store(true, Ordering::Release);
                files.retired.push(full);
            }
        }
    }

    fn another(&self, failed: &mut Option<Instant>) -> Result<Arc<Segment>, Full> {
        if failed.is_some_and(|at| at.elapsed() < PAUSE) {
            return Err(Full::Bytes);
        }
        let made = self.segment();
        *failed = made.is_err().then(Instant::now);
        made.map(Arc::new)
    }
}

/// The journal of one process. Any thread.
#[derive(Clone)]
pub struct Journal {
    shared: Arc<Shared>,
}

impl Journal {
    /// Makes the folder where it is not there, and the first segment.
    ///
    /// # Errors
    /// Where there can be no such folder, or no segment in it for want of room on the disk. As long as too much waits
    /// there already it is made all the same, and full.
    pub fn new(settings: Settings) -> io::Result<Self> {
        let folder = &settings.folder;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        // Whoever made it: what is in it is nobody else's business.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        remove_unfinished(folder)?;
        let journal = Self {
            shared: Arc::new(Shared {
                settings,
                files: Mutex::default(),
                over: Mutex::default(),
                open: AtomicUsize::new(0),
                unsynced: Mutex::default(),
                is_failing: AtomicBool::new(false),
            }),
        };
        match journal.prepare() {
            Ok(()) | Err(Full::Bytes) => Ok(journal),
            Err(Full::Disk(error) | Full::Unsynced(error)) => Err(error),
        }
    }

    /// Open a record. What is in it outlives this process from here on.
    ///
    /// # Errors
    /// Where there is no room, and none can be made; where it is not on the disk, and has to be.
    pub fn open(&self, opening: &Opening, texts: &OpeningTexts<'_>) -> Result<Entry, Full> {
        self.shared.may_sync()?;
        let id = Uuid::now_v7();
        // What is on the disk now is what a power cut leaves, and an upstream is about to hear of it.
        let attempts = u64::from(self.shared.settings.sync == Sync::Always);
        let draft = layout::draft(id.as_u128(), opening, texts, attempts);
        let (segment, at) = self.shared.room(draft.length)?;
        segment.words.store_all(at + 1, &draft.bytes);
        segment.words.store(at, draft.tag, Ordering::Release);
        if let Err(error) = self.shared.stored(&segment) {
            segment.words.store(at + STATE, VOID, Ordering::Release);
            self.shared.release(&segment);
            return Err(Full::Unsynced(error));
        }
        self.shared.open.fetch_add(1, Ordering::AcqRel);
        let over = Over {
            segment,
            at,
            length: draft.length,
        };
        Ok(Entry::new(
            Arc::clone(&self.shared),
            over,
            draft.seen,
            id,
            draft.owner,
        ))
    }

    /// Make the next segment, so that nobody who opens a record has to wait for it.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn prepare(&self) -> Result<(), Full> {
        // One may have held nothing any more when it was full.
        self.shared.reap();
        if !lock(&self.shared.files).spares.is_empty() {
            return Ok(());
        }
        let made = Arc::new(self.shared.segment()?);
        lock(&self.shared.files).failed = None;
        self.shared.keep(made);
        Ok(())
    }

    /// At most `most` records that are over, in the order in which they ended.
    #[must_use]
    pub fn take(&self, most: usize) -> Batch {
        let mut over = lock(&self.shared.over);
        let count = most.min(over.len());
        let taken: Vec<_> = over.drain(..count).collect();
        drop(over);
        let mut rows = Vec::with_capacity(count);
        rows.extend(taken.iter().filter_map(|over| {
            let Over {
                segment,
                at,
                length,
            } = over;
            let telling = layout::telling(*length, |word| {
                segment.words.load(at + word, Ordering::Acquire)
            });
            // The rest of its room is most of it, and in no processor's cache.
            let bytes = segment.words.copy(*at, telling);
            layout::read_record(&bytes, *length)?.filter(Row::is_real)
        }));
        Batch { rows, taken }
    }

    /// They are in the ledger.
    pub fn shipped(&self, batch: Batch) {
        for over in batch.taken {
            over.segment
                .words
                .store(over.at + STATE, SHIPPED, Ordering::Release);
            over.segment.store();
            self.shared.release(&over.segment);
        }
    }

    /// They could not be put into the ledger: they come again.
    pub fn give_back(&self, batch: Batch) {
        let mut over = lock(&self.shared.over);
        for taken in batch.taken.into_iter().rev() {
            over.push_front(taken);
        }
    }

    /// Records that are over and wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        lock(&self.shared.over).len()
    }

    /// Records that are open.
    #[must_use]
    pub fn opened(&self) -> usize {
        self.shared.open.load(Ordering::Acquire)
    }

    /// At most `most` of the records that are open now, those with ids after `after` alone, by their ids: oldest
    /// first. They end as [`Ending::Interrupted`] with what was seen by now.
    #[must_use]
    pub fn live(&self, after: Option<Uuid>, most: usize) -> Vec<Row> {
        let files = lock(&self.shared.files);
        let mut segments: Vec<_> = files.retired.clone();
        segments.extend(files.current.clone());
        drop(files);
        let after = after.map_or(0, |id| id.as_u128());
        let mut rows: Vec<_> = segments
            .iter()
            .filter(|segment| segment.live.load(Ordering::Acquire) > 0)
            .flat_map(|segment| open_in(&segment.words, segment.next.load(Ordering::Acquire)))
            .filter(|row| row.id > after)
            .collect();
        rows.sort_unstable_by_key(|row| row.id);
        rows.truncate(most);
        rows
    }

    /// Bytes of all segments in the folder, whoever's they are.
    ///
    /// # Errors
    /// Where the folder cannot be read.
    pub fn bytes(&self) -> io::Result<u64> {
        Ok(segments_in(&self.shared.settings.folder)?.len() as u64 * SEGMENT_BYTES)
    }

    /// With [`Sync::Called`]: write what was stored since the last time to the disk, but for records that are in the
    /// ledger by now. With [`Sync::Always`] that is done; after a failure the disk is asked whether it works again.
    ///
    /// # Errors
    /// Where that fails, or a sync has failed since the last time.
    pub fn sync(&self) -> io::Result<()> {
        let shared = &self.shared;
        let done = match shared.settings.sync {
            Sync::Never => Ok(()),
            Sync::Called => self.sync_all(),
            Sync::Always if self.is_failing() => shared.probe(),
            Sync::Always => Ok(()),
        };
        let untold = lock(&shared.unsynced).untold.take();
        done?;
        untold.map_or(Ok(()), Err)
    }

    fn sync_all(&self) -> io::Result<()> {
        let files = lock(&self.shared.files);
        let mut segments: Vec<_> = files.retired.clone();
        segments.extend(files.current.clone());
        drop(files);
        let mut done = Ok(());
        // One that failed is left as it is: what is in it comes to the ledger all the same, or is lost with a machine.
        for segment in segments.iter().filter(|segment| !segment.has_failed()) {
            done = done.and(self.shared.sync(segment));
        }
        self.shared.note(done)
    }

    /// Whether the last sync failed.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.shared.is_failing.load(Ordering::Acquire)
    }

    /// The oldest segment that a dead process has left in the folder and that nobody has taken, locked for this one.
    ///
    /// # Errors
    /// Where the folder, or the segment, cannot be read.
    pub fn abandoned(&self) -> io::Result<Option<Abandoned>> {
        abandoned_in(&self.shared.settings.folder)
    }

    /// Delete the segments that hold nothing. For the end of the process; a record can still be opened.
    pub fn close(&self) {
        let mut files = lock(&self.shared.files);
        files.closed = true;
        if let Some(current) = files.current.take() {
            current.retired.store(true, Ordering::Release);
            files.retired.push(current);
        }
        let spares = std::mem::take(&mut files.spares);
        drop(files);
        for spare in spares {
            let _ = fs::remove_file(&spare.path);
        }
        self.shared.reap();
    }
}

/// Records on their way to the ledger. Dropped, they stay where they are until the process ends, and are found by the
/// next one.
pub struct Batch {
    /// What they say. A record that no upstream has heard of has none.
    pub rows: Vec<Row>,
    taken: Vec<Over>,
}

/// A segment that a dead process has left.
pub struct Abandoned {
    /// What is in it, and not in the ledger as far as it says.
    pub rows: Vec<Row>,
    path: PathBuf,
    _lock: File,
}

impl Abandoned {
    /// All of it is in the ledger: the segment goes.
    ///
    /// # Errors
    /// Where it cannot be deleted.
    pub fn finish(self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The oldest segment in `folder` that a dead process has left and that nobody has taken.
///
/// # Errors
/// Where the folder, or the segment, cannot be read.
pub fn abandoned_in(folder: &Path) -> io::Result<Option<Abandoned>> {
    for path in segments_in(folder)? {
        if let Some(file) = seize(&path)? {
            return Ok(Some(Abandoned {
                rows: read_all(&bytes_of(&file)?),
                path,
                _lock: file,
            }));
        }
    }
    Ok(None)
}
