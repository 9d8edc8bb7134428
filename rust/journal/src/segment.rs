//! One file of the journal.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;
use uuid::Uuid;

use crate::layout::{FIRST, MAGIC, telling};
use crate::live::{finished_until, records};
use crate::map::Words;

/// Bytes of a segment.
pub const SEGMENT_BYTES: u64 = 8 * 1024 * 1024;

const ENDING: &str = "journal";
/// Of a file that nobody has locked yet.
const NEW: &str = "new";

/// A segment of this process.
pub(crate) struct Segment {
    pub(crate) words: Words,
    /// The file is locked as long as it is open.
    _lock: File,
    pub(crate) path: PathBuf,
    /// The next free word. Changed by whoever holds the journal's lock.
    pub(crate) next: AtomicUsize,
    /// Records that are not in the ledger yet.
    pub(crate) live: AtomicUsize,
    /// No more records are opened in it.
    pub(crate) retired: AtomicBool,
    /// Something was stored since it was last written to the disk.
    pub(crate) dirty: AtomicBool,
    /// Nothing in front of this word is to be put into the ledger any more, as far as anybody has looked.
    finished: AtomicUsize,
}

impl Segment {
    /// Make one at full size, so that a full disk shows now.
    pub(crate) fn create(folder: &Path) -> io::Result<Self> {
        let new = folder.join(Uuid::now_v7().simple().to_string());
        let new = new.with_extension(NEW);
        let made = Self::fill(&new);
        if made.is_err() {
            let _ = fs::remove_file(&new);
        }
        made
    }

    fn fill(new: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(new)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        match fallocate(&file, FallocateFlags::empty(), 0, SEGMENT_BYTES) {
            Ok(()) => {}
            // A file system that cannot: what is written takes the room just as well.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(&file)?,
            Err(error) => return Err(error.into()),
        }
        let words = Words::map(&file)?;
        words.store(0, MAGIC, Ordering::Release);
        let path = new.with_extension(ENDING);
        // Whoever looks for what dead processes left sees it only now that it is locked.
        fs::rename(new, &path)?;
        Ok(Self {
            words,
            _lock: file,
            path,
            next: AtomicUsize::new(FIRST),
            live: AtomicUsize::new(0),
            retired: AtomicBool::new(false),
            dirty: AtomicBool::new(true),
            finished: AtomicUsize::new(FIRST),
        })
    }

    /// As a new one is. Only where nothing comes of any record in it any more.
    pub(crate) fn empty(&self) {
        let end = self.next.load(Ordering::Relaxed);
        let mut cleared = FIRST;
        for (at, length) in records(&self.words, end) {
            // Most of a record's room has never been written to.
            let written =
                at + telling(length, |word| self.words.load(at + word, Ordering::Relaxed));
            self.words.clear(cleared, written);
            cleared = at + length;
        }
        self.words.clear(cleared, end);
        self.next.store(FIRST, Ordering::Relaxed);
        self.finished.store(FIRST, Ordering::Relaxed);
        self.retired.store(false, Ordering::Release);
    }

    /// Room for `length` words, where there is some. For the holder of the journal's lock.
    pub(crate) fn room(&self, length: usize) -> Option<usize> {
        let at = self.next.load(Ordering::Relaxed);
        let end = at.checked_add(length)?;
        if end > self.words.count() {
            return None;
        }
        self.next.store(end, Ordering::Relaxed);
        self.live.fetch_add(1, Ordering::AcqRel);
        Some(at)
    }

    /// Write it to the disk, if anything was stored since the last time: from the first record on that is not in the
    /// ledger. Those before it would be most of what is written, each page for nothing.
    pub(crate) fn sync(&self) -> io::Result<()> {
        if !self.dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let end = self.next.load(Ordering::Acquire);
        let first = finished_until(&self.words, self.finished.load(Ordering::Acquire), end);
        self.finished.store(first, Ordering::Release);
        if first >= end {
            return Ok(());
        }
        let synced = self.words.flush(first, end);
        if synced.is_err() {
            self.dirty.store(true, Ordering::Release);
        }
        synced
    }
}

fn write_zeros(mut file: &File) -> io::Result<()> {
    let mut zeros = io::repeat(0).take(SEGMENT_BYTES);
    io::copy(&mut zeros, &mut file).map(drop)
}

/// Sync the folder itself, so that a new file is found after a power cut.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The segments in a folder, whoever's they are, oldest first.
pub(crate) fn segments_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == ENDING) {
            found.push(path);
        }
    }
    // Their names are times.
    found.sort_unstable();
    Ok(found)
}

/// Remove what was left of segments in the making. One that is being made is locked, or its maker makes another.
pub(crate) fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == NEW)
            && let Ok(file) = File::open(&path)
            && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = fs::remove_file(&path);
        }
    }
    Ok(())
}

/// A segment of a process that is gone, locked. `None`: its process lives, or somebody else has taken it.
pub(crate) fn seize(path: &Path) -> io::Result<Option<File>> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    // Whoever had it may have deleted it in between.
    Ok((file.metadata()?.nlink() > 0).then_some(file))
}

/// What is in a segment, as far as it is there.
pub(crate) fn bytes_of(mut file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    (&mut file).take(SEGMENT_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
