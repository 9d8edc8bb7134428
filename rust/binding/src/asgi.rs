//! A sink over an ASGI server's `send`.
//!
//! granian's `send` may be called from any thread: it puts the message into a bounded channel and returns an awaitable that is
//! done already, or, where the client is slow and the channel full, one that is pending. The first costs no turn of the event
//! loop; the second, and every `send` of another server (a coroutine function that only its loop may run), is handed to the
//! reply's `defer`, which waits for it. Until that is done nothing more is sent: that is the backpressure.
//!
//! What a client that never reads costs is bound: messages are small, because granian holds a handful of them, and so is what
//! waits here, because it is all that makes the pump stop reading.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple, PyType};
use sluicegate_relay::Sink;
use sluicegate_relay::sink::HeaderList;

use crate::delivery;

/// The part of a client's buffer that waits here, and the largest message to the server. granian holds up to six of these (one
/// that waits, four in its channel, one just taken), and its connection buffers a quarter more; the read that went too far is the rest.
const PENDING_PART: usize = 20;
const MESSAGE_PART: usize = 40;

/// What a reply has been sent, for whoever wants all of it at its end. Copied: a frame may be a small slice of a large read.
struct Kept {
    text: Vec<u8>,
    bound: usize,
}

#[derive(Default)]
struct State {
    /// `None` also where it was more than wanted.
    kept: Option<Kept>,
    start: Option<(u16, HeaderList)>,
    frames: Vec<Bytes>,
    /// Bytes in `frames`, and in the message that `send` has not finished with.
    bytes: usize,
    in_flight: usize,
    ended: bool,
    end_sent: bool,
    /// A message is with the event loop.
    waiting: bool,
    /// In the list of what is ready.
    queued: bool,
    /// The pump waits for room, or for the end. Else a delivery need not wake it: it would run once more for every frame.
    wanted: bool,
    /// The server takes no more.
    dead: bool,
}

impl State {
    fn keep(&mut self, frames: &[Bytes], bytes: usize) {
        if let Some(kept) = &mut self.kept {
            if bytes > kept.bound - kept.text.len() {
                self.kept = None;
            } else {
                frames
                    .iter()
                    .for_each(|frame| kept.text.extend_from_slice(frame));
            }
        }
    }

    fn has_work(&self) -> bool {
        self.start.is_some() || !self.frames.is_empty() || self.ended && !self.end_sent
    }

    /// What waits, up to `limit` bytes: frames, and how long they are together. A frame is cut only where it alone is longer.
    fn take_frames(&mut self, limit: usize) -> (Vec<Bytes>, usize) {
        if self.bytes <= limit {
            return (
                std::mem::take(&mut self.frames),
                std::mem::take(&mut self.bytes),
            );
        }
        let mut taken = 0;
        let mut whole = 0;
        for frame in &self.frames {
            if taken + frame.len() > limit {
                break;
            }
            taken += frame.len();
            whole += 1;
        }
        let mut frames = self.frames.drain(..whole).collect::<Vec<_>>();
        if whole == 0
            && let Some(next) = self.frames.first_mut()
        {
            frames.push(next.split_to(limit));
            taken = limit;
        }
        self.bytes -= taken;
        (frames, taken)
    }
}

/// The shared part of a reply on its way out: the relay's thread fills and delivers it, the event loop reports back.
pub(crate) struct Outlet {
    state: Mutex<State>,
    waker: AtomicWaker,
    send: Py<PyAny>,
    reply: Py<PyAny>,
    direct: bool,
    message_bytes: usize,
}

enum Message {
    Start(u16, HeaderList),
    Body { frames: Vec<Bytes>, more: bool },
}

/// What became of a message.
enum Delivery {
    Taken,
    /// `resume` will tell.
    Deferred,
    Refused,
}

impl Outlet {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while it was held cannot leave it inconsistent: every change is a plain assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_message(&self) -> Option<Message> {
        let mut state = self.lock();
        state.queued = false;
        if state.waiting || state.dead {
            return None;
        }
        if let Some((status, headers)) = state.start.take() {
            return Some(Message::Start(status, headers));
        }
        if !state.has_work() {
            return None;
        }
        let (frames, bytes) = state.take_frames(self.message_bytes);
        state.in_flight = bytes;
        state.end_sent = state.ended && state.frames.is_empty();
        Some(Message::Body {
            frames,
            more: !state.end_sent,
        })
    }

    /// All that was sent, once; `None` where it was not to be kept, or was more than that.
    pub(crate) fn take_kept(&self) -> Option<Vec<u8>> {
        self.lock().kept.take().map(|kept| kept.text)
    }

    /// Hand over what there is, until the server makes us wait. Needs the GIL.
    pub(crate) fn deliver(self: &Arc<Self>, py: Python<'_>) {
        while let Some(message) = self.next_message() {
            let last = matches!(message, Message::Body { more: false, .. });
            match self.deliver_one(py, message) {
                Ok(Delivery::Taken) if last => self.tell_finished(py),
                Ok(Delivery::Taken | Delivery::Deferred) => {}
                Ok(Delivery::Refused) => return self.give_up(py),
                Err(error) => {
                    error.write_unraisable(py, Some(self.reply.bind(py)));
                    return self.give_up(py);
                }
            }
        }
        if self.lock().wanted {
            self.waker.wake();
        }
    }

    /// Tell the reply that the server has all of it, in the same hold of the GIL.
    fn tell_finished(&self, py: Python<'_>) {
        self.tell(py, pyo3::intern!(py, "finished"));
    }

    /// Tell it that the server will never have all of it.
    fn tell_aborted(&self, py: Python<'_>) {
        self.tell(py, pyo3::intern!(py, "abort"));
    }

    /// Nothing more can be delivered.
    fn give_up(&self, py: Python<'_>) {
        self.resume(false);
        self.tell_aborted(py);
    }

    fn tell(&self, py: Python<'_>, what: &Bound<'_, PyString>) {
        let reply = self.reply.bind(py);
        if let Err(error) = reply.call_method0(what) {
            error.write_unraisable(py, Some(reply));
        }
    }

    fn deliver_one(self: &Arc<Self>, py: Python<'_>, message: Message) -> PyResult<Delivery> {
        let message = asgi_message(py, message)?;
        let pending = if self.direct {
            let Ok(sent) = self.send.bind(py).call1((message,)) else {
                // The client has left and the request has ended: granian closes its side then, whatever is on its way. Where it has not
                // ended yet nothing else would end it.
                return Ok(Delivery::Refused);
            };
            if is_done(&sent)? {
                self.lock().in_flight = 0;
                return Ok(Delivery::Taken);
            }
            sent
        } else {
            message.into_any()
        };
        self.lock().waiting = true;
        let resume = Resume {
            outlet: Arc::clone(self),
        };
        self.reply
            .bind(py)
            .call_method1(pyo3::intern!(py, "defer"), (pending, resume))?;
        Ok(Delivery::Deferred)
    }

    fn resume(&self, ok: bool) {
        let mut state = self.lock();
        state.waiting = false;
        state.in_flight = 0;
        if !ok {
            state.dead = true;
            state.frames.clear();
            state.bytes = 0;
        }
        drop(state);
        self.waker.wake();
    }
}

fn asgi_message<'py>(py: Python<'py>, message: Message) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let kind = pyo3::intern!(py, "type");
    match message {
        Message::Start(status, headers) => {
            dict.set_item(kind, pyo3::intern!(py, "http.response.start"))?;
            dict.set_item(pyo3::intern!(py, "status"), status)?;
            let pairs = PyList::empty(py);
            for (name, value) in &headers {
                let pair = [PyBytes::new(py, name), PyBytes::new(py, value)];
                pairs.append(PyTuple::new(py, pair)?)?;
            }
            dict.set_item(pyo3::intern!(py, "headers"), pairs)?;
        }
        Message::Body { frames, more } => {
            dict.set_item(kind, pyo3::intern!(py, "http.response.body"))?;
            let body = match frames.as_slice() {
                [frame] => PyBytes::new(py, frame),
                frames => joined(py, frames)?,
            };
            dict.set_item(pyo3::intern!(py, "body"), body)?;
            dict.set_item(pyo3::intern!(py, "more_body"), more)?;
        }
    }
    Ok(dict)
}

/// The bytes of all `frames`.
fn joined<'py>(py: Python<'py>, frames: &[Bytes]) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = frames.iter().map(Bytes::len).sum();
    PyBytes::new_with(py, bytes, |mut room| {
        for frame in frames {
            let (here, rest) = room.split_at_mut(frame.len());
            here.copy_from_slice(frame);
            room = rest;
        }
        Ok(())
    })
}

/// Whether `object` is of granian's class `name`. The class is remembered once it was met, so that this is one comparison.
fn is_granian(
    object: &Bound<'_, PyAny>,
    cache: &PyOnceLock<Py<PyType>>,
    name: &str,
) -> PyResult<bool> {
    let py = object.py();
    let class = object.get_type();
    if let Some(known) = cache.get(py) {
        return Ok(class.is(known.bind(py)));
    }
    let met = class.name()? == name && {
        let module = class.getattr(pyo3::intern!(py, "__module__"))?;
        module.extract::<String>().is_ok_and(|module| {
            module == "builtins" && name == "PyEmptyAwaitable" || module.starts_with("granian")
        })
    };
    if met {
        let _ = cache.set(py, class.unbind());
    }
    Ok(met)
}

/// granian's own `send`: a bound method of its protocol object.
fn is_direct(send: &Bound<'_, PyAny>) -> PyResult<bool> {
    static PROTOCOL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    match send.getattr_opt(pyo3::intern!(send.py(), "__self__"))? {
        Some(owner) => is_granian(&owner, &PROTOCOL, "ASGIHTTPProtocol"),
        None => Ok(false),
    }
}

/// The awaitable that granian returns where the message was taken at once.
fn is_done(awaitable: &Bound<'_, PyAny>) -> PyResult<bool> {
    static DONE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    is_granian(awaitable, &DONE, "PyEmptyAwaitable")
}

/// What `defer` calls when the server has taken the message, or will not.
#[pyclass(module = "sluicegate._core", frozen)]
struct Resume {
    outlet: Arc<Outlet>,
}

#[pymethods]
impl Resume {
    fn __call__(&self, py: Python<'_>, ok: bool) {
        let last = self.outlet.lock().end_sent;
        self.outlet.resume(ok);
        if last {
            self.outlet.tell_finished(py);
        }
    }
}

/// The relay's end of an outlet.
pub(crate) struct AsgiSink {
    outlet: Arc<Outlet>,
    bound: usize,
}

impl AsgiSink {
    /// `reply` has `send` and `defer`; `client_buffer` is all that a client may leave unread, `keep` the bytes that `take_kept` may
    /// give.
    pub(crate) fn new(
        reply: &Bound<'_, PyAny>,
        client_buffer: usize,
        keep: Option<usize>,
    ) -> PyResult<Self> {
        let send = reply.getattr(pyo3::intern!(reply.py(), "send"))?;
        let direct = is_direct(&send)?;
        let state = State {
            kept: keep.map(|bound| Kept {
                text: Vec::new(),
                bound,
            }),
            ..State::default()
        };
        let outlet = Outlet {
            state: Mutex::new(state),
            waker: AtomicWaker::new(),
            send: send.unbind(),
            reply: reply.clone().unbind(),
            direct,
            // Any other server is awaited for each message: it holds one, and whoever looks at them sees whole events.
            message_bytes: if direct {
                (client_buffer / MESSAGE_PART).max(1)
            } else {
                usize::MAX
            },
        };
        Ok(Self {
            outlet: Arc::new(outlet),
            bound: client_buffer / PENDING_PART,
        })
    }

    pub(crate) fn outlet(&self) -> Arc<Outlet> {
        Arc::clone(&self.outlet)
    }

    /// Change the state; queue the outlet where that left something to deliver.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.outlet.lock();
        change(&mut state);
        self.queue(state);
    }

    fn poll(
        &self,
        ready: bool,
        mut state: MutexGuard<'_, State>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        self.outlet.waker.register(cx.waker());
        state.wanted = !ready;
        self.queue(state);
        if ready {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    fn queue(&self, mut state: MutexGuard<'_, State>) {
        if state.queued || state.waiting || state.dead || !state.has_work() {
            return;
        }
        state.queued = true;
        drop(state);
        delivery::ready(&self.outlet);
    }
}

impl Sink for AsgiSink {
    fn start(&mut self, status: u16, headers: HeaderList) {
        self.change(|state| state.start = Some((status, headers)));
    }

    fn push(&mut self, frames: &mut Vec<Bytes>) {
        self.change(|state| {
            if state.dead {
                frames.clear();
                return;
            }
            let bytes = frames.iter().map(Bytes::len).sum::<usize>();
            state.keep(frames, bytes);
            state.bytes += bytes;
            if state.waiting {
                // They are slices of reads, and may be small ones of large: what waits for long must hold no more than itself.
                let copies = frames.iter().map(|frame| Bytes::copy_from_slice(frame));
                state.frames.extend(copies);
                frames.clear();
            } else {
                state.frames.append(frames);
            }
        });
    }

    fn end(&mut self) {
        self.change(|state| state.ended = true);
    }

    fn abort(&mut self) {
        // What waits for the end of the turn, the head above all: without one the server would answer with an error of its own.
        let _ = Python::try_attach(|py| self.outlet.deliver(py));
        self.change(|state| {
            state.frames.clear();
            state.bytes = 0;
            state.dead = true;
        });
        let _ = Python::try_attach(|py| self.outlet.tell_aborted(py));
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let state = self.outlet.lock();
        let full = !state.dead && state.bytes + state.in_flight >= self.bound;
        self.poll(!full, state, cx)
    }

    fn poll_flushed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let state = self.outlet.lock();
        let flushed = state.dead || !state.waiting && !state.has_work();
        self.poll(flushed, state, cx)
    }
}
