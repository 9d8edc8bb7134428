//! Bodies that are sent on as they come: forms, and whatever else goes to a path of an operator's own.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as _, Incoming};
use sluicegate_core::form::{Form, FormFault, FormScanner};
use sluicegate_relay::{Broken, Engine, Source, Upload};

use crate::bounds::Pace;
use crate::paced::Paced;
use crate::reading::discard;
use crate::refusal::{Form as ErrorForm, Refusal};
use crate::room::Share;

/// A request of which the first part was read.
#[derive(Debug, Clone)]
pub struct Uploaded {
    /// What the form said by then; of anything else which model the path names.
    pub form: Form,
    /// Its body.
    pub upload: Upload,
}

/// A body of any form that is there whole, for the model that its path names.
pub(crate) fn anything(model: Option<Box<str>>, body: Bytes) -> Uploaded {
    Uploaded {
        form: named(model),
        upload: Upload::new(body, None, None, None),
    }
}

/// What is known of a body that is no form.
fn named(model: Option<Box<str>>) -> Form {
    Form {
        model,
        ..Form::default()
    }
}

/// A form that is there whole.
///
/// # Errors
/// It is none.
pub(crate) fn form(content_type: &[u8], body: Bytes) -> Result<Uploaded, FormFault> {
    let mut scanner = FormScanner::new(content_type)?;
    scanner.feed(&body)?;
    let form = scanner.finish()?.clone();
    let model = form.model.is_some().then(|| form.model_at.clone());
    Ok(Uploaded {
        form,
        upload: Upload::new(body, model, None, None),
    })
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
    pub(crate) form: ErrorForm,
    pub(crate) request_id: &'a str,
    pub(crate) engine: &'a Engine,
}

impl Taking<'_> {
    /// The form in `body`: read until its model is known and so much is held, or all of it. What is read takes its
    /// share of the room, because a client may write its file first.
    pub(crate) async fn form(
        self,
        content_type: &[u8],
        body: Incoming,
    ) -> Result<Uploaded, (Refusal, Incoming)> {
        match FormScanner::new(content_type) {
            Ok(scanner) => self.read(Some(scanner), body).await,
            Err(fault) => Err((Refusal::Form(fault), body)),
        }
    }

    /// Whatever is in `body`, for the model that its path names: so much is held of it.
    pub(crate) async fn anything(
        self,
        model: Option<Box<str>>,
        body: Incoming,
    ) -> Result<Uploaded, (Refusal, Incoming)> {
        let mut uploaded = self.read(None, body).await?;
        uploaded.form = named(model);
        Ok(uploaded)
    }

    async fn read(
        mut self,
        mut scanner: Option<FormScanner>,
        body: Incoming,
    ) -> Result<Uploaded, (Refusal, Incoming)> {
        let declared = body.size_hint().exact();
        if declared.is_some_and(|declared| declared > self.limit as u64) {
            return Err((Refusal::TooLarge(self.limit), body));
        }
        let mut paced = Paced::new(body, self.pace, 0, Duration::ZERO);
        let mut held = BytesMut::new();
        let mut ended = false;
        let is_known = |scanner: &Option<FormScanner>| {
            let form = scanner.as_ref().map(FormScanner::form);
            form.is_none_or(|form| form.model.is_some())
        };
        while !(ended || is_known(&scanner) && held.len() >= self.hold) {
            let data = std::future::poll_fn(|cx| paced.poll_data(cx)).await;
            let taken = match data {
                None => {
                    ended = true;
                    continue;
                }
                Some(Ok(data)) => self.take(scanner.as_mut(), &mut held, &data),
                Some(Err(refusal)) => Err(refusal),
            };
            if let Err(refusal) = taken {
                return Err((refusal, paced.body));
            }
            ended = declared == Some(held.len() as u64);
        }
        if ended
            && let Some(scanner) = &mut scanner
            && let Err(fault) = scanner.finish()
        {
            return Err((Refusal::Form(fault), paced.body));
        }
        let form = scanner.as_ref().map(|scanner| scanner.form().clone());
        let form = form.unwrap_or_default();
        let model = form.model.is_some().then(|| form.model_at.clone());
        let rest: Option<Box<dyn Source>> = if ended {
            None
        } else {
            Some(Box::new(Rest {
                paced: Some(paced),
                scanner,
                limit: self.limit,
                form: self.form,
                request_id: self.request_id.into(),
                engine: self.engine.clone(),
            }))
        };
        let held = self.share.held_by(held.freeze());
        Ok(Uploaded {
            form,
            upload: Upload::new(held, model, declared, rest),
        })
    }

    fn take(
        &mut self,
        scanner: Option<&mut FormScanner>,
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
        if let Some(scanner) = scanner {
            scanner.feed(data).map_err(Refusal::Form)?;
        }
        held.extend_from_slice(data);
        Ok(())
    }
}

/// What follows the part of a body that was read first.
struct Rest {
    /// None once it has ended, well or not.
    paced: Option<Paced>,
    /// Of a form.
    scanner: Option<FormScanner>,
    limit: usize,
    form: ErrorForm,
    request_id: Box<str>,
    engine: Engine,
}

impl Rest {
    fn next(&mut self, data: Option<Result<Bytes, Refusal>>) -> Result<Option<Bytes>, Refusal> {
        let Some(data) = data.transpose()? else {
            if let Some(scanner) = &mut self.scanner {
                scanner.finish().map_err(Refusal::Form)?;
            }
            return Ok(None);
        };
        if self
            .paced
            .as_ref()
            .is_none_or(|paced| paced.bytes() > self.limit)
        {
            return Err(Refusal::TooLarge(self.limit));
        }
        if let Some(scanner) = &mut self.scanner {
            scanner.feed(&data).map_err(Refusal::Form)?;
        }
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
