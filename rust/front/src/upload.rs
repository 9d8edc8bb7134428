//! Bodies that are sent on as they come: forms, and whatever else goes to a path of an operator's own.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use hyper::body::{Body as _, Incoming};
use sluicegate_core::form::FormScanner;
use sluicegate_relay::{Broken, Engine, Source, Upload};

use crate::bounds::Pace;
use crate::endpoint::{Takes, Target};
use crate::paced::Paced;
use crate::reading::discard;
use crate::refusal::{Form, Refusal};
use crate::room::Share;

/// A request of which the first part was read.
#[derive(Debug, Clone)]
pub struct Uploaded {
    /// The model that it is for, as far as one is named.
    pub model: Option<Box<str>>,
    /// It asks for a stream, as far as it has said so.
    pub stream: bool,
    /// Its body.
    pub upload: Upload,
}

/// What is read of a body on its way.
pub(crate) enum Reader {
    /// Of a form, which model it asks for, and whether for a stream.
    Form(Box<FormScanner>),
    /// Of anything else nothing: its path names the model, where anything does.
    Other(Option<Box<str>>),
}

impl Reader {
    /// What reads the body of a request with these headers; None: it is JSON, and read whole.
    ///
    /// # Errors
    /// It is to be a form, and its headers do not call it one.
    pub(crate) fn of(target: &Target, headers: &HeaderMap) -> Result<Option<Self>, Refusal> {
        Ok(match target.endpoint.takes(headers) {
            Takes::Json => None,
            Takes::Form(content_type) => {
                let scanner = FormScanner::new(content_type).map_err(Refusal::Form)?;
                Some(Self::Form(Box::new(scanner)))
            }
            Takes::Anything => Some(Self::Other(target.model.clone())),
        })
    }

    fn feed(&mut self, data: &[u8]) -> Result<(), Refusal> {
        match self {
            Self::Form(scanner) => scanner.feed(data).map_err(Refusal::Form),
            Self::Other(_) => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<(), Refusal> {
        match self {
            Self::Form(scanner) => scanner.finish().map(drop).map_err(Refusal::Form),
            Self::Other(_) => Ok(()),
        }
    }

    /// What follows need not be waited for.
    fn is_satisfied(&self) -> bool {
        match self {
            Self::Form(scanner) => scanner.form().model.is_some(),
            Self::Other(_) => true,
        }
    }

    /// The request, of which `held` was read. `size`: bytes of the whole body, where they are known.
    fn uploaded(
        self,
        held: Bytes,
        size: Option<u64>,
        rest: impl FnOnce(Self) -> Option<Box<dyn Source>>,
    ) -> Uploaded {
        let (model, at, stream) = match &self {
            Self::Form(scanner) => {
                let form = scanner.form();
                let at = form.model.is_some().then(|| form.model_at.clone());
                (form.model.clone(), at, form.stream)
            }
            Self::Other(model) => (model.clone(), None, false),
        };
        Uploaded {
            model,
            stream,
            upload: Upload::new(held, at, size, rest(self)),
        }
    }
}

/// A body that is there whole.
///
/// # Errors
/// It is not the form that it is called.
pub(crate) fn whole(mut reader: Reader, body: Bytes) -> Result<Uploaded, Refusal> {
    reader.feed(&body)?;
    reader.finish()?;
    Ok(reader.uploaded(body, None, |_| None))
}

/// How uploads are taken in.
pub(crate) struct Taking<'a> {
    /// Bytes of the whole body.
    pub(crate) limit: usize,
    /// Bytes that are held in any case.
    pub(crate) hold: usize,
    pub(crate) pace: Pace,
    pub(crate) share: Share,
    /// How errors are written.
    pub(crate) form: Form,
    pub(crate) request_id: &'a str,
    pub(crate) engine: &'a Engine,
}

impl Taking<'_> {
    /// What is in `body`: read until its `reader` is satisfied and so much is held, or all of it. What is read takes
    /// its share of the room, because a client may write its file first.
    pub(crate) async fn read(
        mut self,
        mut reader: Reader,
        body: Incoming,
    ) -> Result<Uploaded, (Refusal, Incoming)> {
        let declared = body.size_hint().exact();
        if declared.is_some_and(|declared| declared > self.limit as u64) {
            return Err((Refusal::TooLarge(self.limit), body));
        }
        let mut paced = Paced::new(body, self.pace, 0, Duration::ZERO);
        let mut held = BytesMut::new();
        let mut ended = false;
        while !(ended || reader.is_satisfied() && held.len() >= self.hold) {
            let data = std::future::poll_fn(|cx| paced.poll_data(cx)).await;
            let taken = match data {
                None => {
                    ended = true;
                    continue;
                }
                Some(Ok(data)) => self.take(&mut reader, &mut held, &data),
                Some(Err(refusal)) => Err(refusal),
            };
            if let Err(refusal) = taken {
                return Err((refusal, paced.body));
            }
            ended = declared == Some(held.len() as u64);
        }
        if ended && let Err(refusal) = reader.finish() {
            return Err((refusal, paced.body));
        }
        let held = self.share.held_by(held.freeze());
        Ok(reader.uploaded(held, declared, |reader| {
            if ended {
                return None;
            }
            Some(Box::new(Rest {
                paced: Some(paced),
                reader,
                limit: self.limit,
                form: self.form,
                request_id: self.request_id.into(),
                engine: self.engine.clone(),
            }))
        }))
    }

    fn take(
        &mut self,
        reader: &mut Reader,
        held: &mut BytesMut,
        data: &Bytes,
    ) -> Result<(), Refusal> {
        let size = held.len() + data.len();
        if size > self.limit {
            return Err(Refusal::TooLarge(self.limit));
        }
        if !self.share.grow_to(size) {
            return Err(Refusal::Overloaded);
        }
        reader.feed(data)?;
        held.extend_from_slice(data);
        Ok(())
    }
}

/// What follows the part of a body that was read first.
struct Rest {
    /// None once it has ended, well or not.
    paced: Option<Paced>,
    reader: Reader,
    limit: usize,
    form: Form,
    request_id: Box<str>,
    engine: Engine,
}

impl Rest {
    fn next(&mut self, data: Option<Result<Bytes, Refusal>>) -> Result<Option<Bytes>, Refusal> {
        let Some(data) = data.transpose()? else {
            self.reader.finish()?;
            return Ok(None);
        };
        if self
            .paced
            .as_ref()
            .is_none_or(|paced| paced.bytes() > self.limit)
        {
            return Err(Refusal::TooLarge(self.limit));
        }
        self.reader.feed(&data)?;
        Ok(Some(data))
    }
}

impl Source for Rest {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        let Some(paced) = &mut self.paced else {
            return Poll::Ready(None);
        };
        let data = ready!(paced.poll_data(cx));
        Poll::Ready(match self.next(data) {
            Ok(Some(data)) => Some(Ok(data)),
            Ok(None) => {
                self.paced = None;
                None
            }
            // Whoever ended its sending in the middle has left, as a rule.
            Err(Refusal::Incomplete) => Some(Err(Broken::Left)),
            Err(refusal) => {
                let reply = refusal.reply(self.form, &self.request_id);
                Some(Err(Broken::Refused(reply, refusal.code())))
            }
        })
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        // The upstream has answered, and the client may still be sending: it is to see the answer and not a reset.
        if let Some(paced) = self.paced.take()
            && !paced.is_end_stream()
        {
            self.engine.spawn(discard(paced.body));
        }
    }
}
