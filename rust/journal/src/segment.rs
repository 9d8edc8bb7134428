//! One file of the journal.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;
use uuid::Uuid;

use crate::layout::{FIRST, MAGIC, telling};
use crate::live::{finished_until, records};
use crate::map::Words;
use crate::sync::OnSync;

/// Bytes of a segment.
pub const SEGMENT_BYTES: u64 = 8 * 1024 * 1024;

const ENDING: &str = "journal";
/// Of a file that nobody has locked yet.
const NEW: &str = "new";

#[derive(Default)]
struct Synced {
    /// What was stored up to this time of storing is on the disk.
    stored: u64,
    /// What could not be written is not tried again: the kernel counts such a page as written (`fsync(2)`, "Errors").
    failed: bool,
}

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
    /// How often something was stored in it.
    stored: AtomicU64,
    /// How much of that is on the disk; held by whoever writes it there.
    synced: Mutex<Synced>,
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
        write_in_place(&file);
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
            stored: AtomicU64::new(1),
            synced: Mutex::default(),
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

    /// Something was stored.
    pub(crate) fn store(&self) {
        self.stored.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether something in it could not be written to the disk: nothing in it can be relied upon there any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.synced().failed
    }

    fn synced(&self) -> MutexGuard<'_, Synced> {
        // A panic while it was held cannot leave it inconsistent: every change is a plain assignment.
        self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Have all on the disk that has been stored by now: from the first record on that is not in the ledger. Those
    /// before it would be most of what is written, each page for nothing.
    ///
    /// Whoever comes while another writes waits for that, and then for the next writing, which covers what all of them
    /// have stored.
    pub(crate) fn sync(&self, on_sync: &OnSync) -> io::Result<()> {
        let mine = self.stored.load(Ordering::Acquire);
        let mut synced = self.synced();
        if synced.failed {
            return Err(io::Error::other("an earlier sync of this file has failed"));
        }
        if synced.stored >= mine {
            return Ok(());
        }
        let stored = self.stored.load(Ordering::Acquire);
        let end = self.next.load(Ordering::Acquire);
        let first = finished_until(&self.words, self.finished.load(Ordering::Acquire), end);
        self.finished.store(first, Ordering::Release);
        if first < end {
            let done = on_sync.call().and_then(|()| self.words.flush(first, end));
            synced.failed = done.is_err();
            done?;
        }
        synced.stored = stored;
        Ok(())
    }

    /// Whether the disk takes anything of it, by writing its first page.
    pub(crate) fn probe(&self, on_sync: &OnSync) -> io::Result<()> {
        let mut synced = self.synced();
        self.words.store(0, MAGIC, Ordering::Release);
        let done = on_sync.call().and_then(|()| self.words.flush(0, FIRST));
        synced.failed |= done.is_err();
        done
    }
}

/// Btrfs writes what is changed to another place, for which a full disk has none: the process would be ended by
/// SIGBUS. A file that is empty can be told to stay where it is (`ioctl_iflags(2)`, `FS_NOCOW_FL`). Other file systems
/// refuse, or have no use for it.
#[cfg(target_os = "linux")]
fn write_in_place(file: &File) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

    if let Ok(flags) = ioctl_getflags(file) {
        let _ = ioctl_setflags(file, flags | IFlags::NOCOW);
    }
}

#[cfg(not(target_os = "linux"))]
fn write_in_place(_: &File) {}

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
