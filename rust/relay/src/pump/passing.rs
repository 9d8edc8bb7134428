//! Taking what was read through the pipeline: on the engine's thread, unless that is much work or has to wait.

use bytes::Bytes;
use sluicegate_core::api::Api;
use sluicegate_core::cost::Members;
use sluicegate_core::error::Error;
use sluicegate_core::pipeline::{NotNow, Pipeline, Pricer, ReplyPlan};
use sluicegate_core::usage::Usage;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use super::{Client, Pump};
use crate::director::{ByRates, Pricing};
use crate::engine::{Engine, LAST_WORDS};
use crate::fault::FaultKind;
use crate::offload::{LARGE, offload};
use crate::tally;

/// What the pipeline is to do.
pub(super) enum Step {
    Feed(Bytes),
    /// Say the end of the reply, whose price can be asked for now.
    End,
    /// The upstream's reply is over.
    Finish,
}

impl Step {
    fn take(
        self,
        pipeline: &mut Pipeline,
        pricer: &mut dyn Pricer,
        frames: &mut Vec<Bytes>,
    ) -> Result<(), Error> {
        match self {
            Step::Feed(data) => pipeline.feed(data, pricer, frames),
            Step::End => {
                pipeline.end(pricer, frames);
                Ok(())
            }
            Step::Finish => pipeline.finish(pricer, frames),
        }
    }
}

/// Tells what is to be priced before it asks.
struct Telling {
    asked: Box<dyn Pricer + Send>,
    told: UnboundedSender<Usage>,
}

impl Pricer for Telling {
    fn price(&mut self, usage: &Usage) -> Option<Members> {
        // Nobody listens where the gateway's time was over first.
        let _ = self.told.send(usage.clone());
        self.asked.price(usage)
    }
}

impl Pump {
    /// Take a step: on this thread if that is little work and no price has to be asked for.
    pub(super) async fn pass(
        &mut self,
        step: Step,
        client: &mut Client<'_>,
        engine: &Engine,
    ) -> Result<(), FaultKind> {
        let frames = self.frames.len();
        let size = match &step {
            Step::Feed(data) => data.len(),
            Step::End | Step::Finish => 0,
        };
        self.held += size;
        let large = self.held + self.repeated > LARGE;
        let passed = match &self.pricing {
            Pricing::Rates(rates) if !large => {
                step.take(&mut self.pipeline, &mut ByRates(rates), &mut self.frames)
            }
            // Boxed: every stream would keep room for it.
            Pricing::Rates(_) => Box::pin(self.pass_elsewhere(step, client, engine)).await?,
            Pricing::Asked => {
                let asks = match &step {
                    Step::Feed(data) => self.asking.read(data),
                    Step::End | Step::Finish => true,
                };
                if large || asks {
                    Box::pin(self.pass_elsewhere(step, client, engine)).await?
                } else {
                    let passed = step.take(&mut self.pipeline, &mut NotNow, &mut self.frames);
                    if passed.is_ok() && self.pipeline.awaits_price() {
                        Box::pin(self.pass_elsewhere(Step::End, client, engine)).await?
                    } else {
                        passed
                    }
                }
            }
        };
        if self.frames.len() > frames {
            self.asking.came_out();
        }
        if !self.frames.is_empty() {
            self.held = 0;
        }
        passed.map_err(|error| error.kind.into())
    }

    /// The same on a thread that may take its time. What it asks a price for, the account knows before that: the
    /// gateway may not live to hear the answer.
    async fn pass_elsewhere(
        &mut self,
        step: Step,
        client: &mut Client<'_>,
        engine: &Engine,
    ) -> Result<Result<(), Error>, FaultKind> {
        let pricing = self.pricing.clone();
        let (told, mut usages) = unbounded_channel();
        let asked = client.director.pricer();
        let mut asked = Telling { asked, told };
        let mut known = Box::new(self.pipeline.facts().clone());
        let stand_in = Pipeline::new(ReplyPlan::new(Api::Chat, false));
        let mut pipeline = std::mem::replace(&mut self.pipeline, stand_in);
        let mut frames = std::mem::take(&mut self.frames);
        let work = move || {
            let passed = match &pricing {
                Pricing::Rates(rates) => step.take(&mut pipeline, &mut ByRates(rates), &mut frames),
                Pricing::Asked => step.take(&mut pipeline, &mut asked, &mut frames),
            };
            (pipeline, frames, passed)
        };
        let mut work = std::pin::pin!(offload(true, work));
        let mut closing = std::pin::pin!(async {
            engine.closing().given().await;
            // The answer may be on its way.
            sleep(LAST_WORDS / 2).await;
        });
        let passed = loop {
            tokio::select! {
                biased;
                passed = &mut work => break passed,
                Some(usage) = usages.recv() => {
                    if let Some(tally) = &mut client.tally {
                        tally.progress(tally::Progress {
                            token_events: known.token_events,
                            bytes_in: self.bytes_in,
                            usage: Some(&usage),
                            whole: false,
                        });
                    }
                    known.usage = Some(usage);
                }
                () = &mut closing => break None,
            }
        };
        let Some((pipeline, frames, passed)) = passed else {
            self.unpriced = Some(known);
            return Err(FaultKind::Shutdown);
        };
        (self.pipeline, self.frames) = (pipeline, frames);
        Ok(passed)
    }
}
