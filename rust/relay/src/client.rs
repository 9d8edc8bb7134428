//! Requests to one upstream: which connection takes them.

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::header::{HOST, HeaderValue};
use http::uri::{PathAndQuery, Uri};
use http::{Request, Response};
use thread_local::ThreadLocal;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::body::UpstreamBody;
use crate::connect::Connector;
use crate::line::Line;
use crate::pool::{Pool, PoolLimits};
use crate::shared::{Shared, Slot};
use crate::unanswered::SendError;
use crate::upload::RequestBody;
use crate::upstream::Upstream;

/// The client's half of an upstream.
pub(crate) struct Client {
    uri: Uri,
    host: Option<HeaderValue>,
    connector: Connector,
    http2: bool,
    limits: PoolLimits,
    /// An engine's thread has its own, so that nothing is shared between engines.
    pools: ThreadLocal<RefCell<Arc<Pool>>>,
}

/// A connection that can take a request.
enum Way {
    Line(Box<Line>),
    Shared(Arc<Shared>),
}

/// A way, and whether others used it before.
type Found = Result<(Way, bool), SendError>;

impl Upstream {
    /// Send `request`, whose URI is absolute, and wait for the reply's head. `fresh`: not over a connection that was
    /// there before. To be awaited on the runtime that reads the body, too.
    pub(crate) fn send(
        &self,
        request: Request<RequestBody>,
        fresh: bool,
    ) -> impl Future<Output = Result<Response<UpstreamBody>, SendError>> + Send {
        self.client.send(request, fresh)
    }
}

impl Client {
    /// `uri` names the server; `http2`: ask for that, and take HTTP/1.1 where the server prefers it.
    pub(crate) fn new(uri: Uri, connector: Connector, http2: bool, limits: PoolLimits) -> Self {
        Self {
            host: host(&uri),
            uri,
            connector,
            http2,
            limits,
            pools: ThreadLocal::new(),
        }
    }

    async fn send(
        &self,
        mut request: Request<RequestBody>,
        mut fresh: bool,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let pool = self.pool();
        let uri = request.uri().clone();
        let mut arrived = Instant::now();
        loop {
            let (way, reused) = self.find(&pool, arrived, fresh).await?;
            let answer = match way {
                Way::Line(line) => {
                    self.address(&mut request);
                    let answer = line.send(request).await;
                    answer.map(|(response, line)| {
                        response.map(|body| UpstreamBody::of_line(body, line))
                    })
                }
                Way::Shared(shared) => {
                    let answer = shared.send(request).await;
                    answer
                        .map(|response| response.map(|body| UpstreamBody::of_shared(body, shared)))
                }
            };
            let unsent = match answer {
                Ok(response) => return Ok(response),
                Err(unsent) => unsent,
            };
            // Its connection ended before anything of the request was sent. A new one is tried, once.
            match unsent.request {
                Some(back) if reused && !fresh => {
                    (request, fresh, arrived) = (*back, true, Instant::now());
                    *request.uri_mut() = uri.clone();
                }
                _ => return Err(unsent.error),
            }
        }
    }

    async fn find(&self, pool: &Arc<Pool>, arrived: Instant, fresh: bool) -> Found {
        if !fresh && let Some(line) = pool.checkout() {
            return Ok((Way::Line(line), true));
        }
        if !self.http2 {
            return self.connect(pool).await.map(|way| (way, false));
        }
        if !pool.chose_http1() {
            let mut slot = pool.slot.lock().await;
            if let Some(shared) = slot.lease(arrived, fresh) {
                return Ok((Way::Shared(shared), true));
            }
            if let Some(error) = slot.failed_since(arrived) {
                return Err(error);
            }
            // What was waited for may have been the answer that there is nothing to share.
            if !pool.chose_http1() {
                let made = self.connect(pool).await;
                note(pool, &mut slot, &made);
                return made.map(|way| (way, false));
            }
        }
        let made = self.connect(pool).await;
        if let Ok(Way::Shared(_)) = made
            && let Ok(mut slot) = pool.slot.try_lock()
        {
            note(pool, &mut slot, &made);
        }
        made.map(|way| (way, false))
    }

    /// In a box, since it is large, rare, and part of what each exchange is made of.
    fn connect<'a>(&'a self, pool: &'a Arc<Pool>) -> BoxFuture<'a, Result<Way, SendError>> {
        Box::pin(async {
            let connected = self
                .connector
                .connect(self.uri.clone())
                .await
                .map_err(|error| SendError::connecting(&*error))?;
            let uses = connected.uses.clone();
            let way = if connected.http2 {
                Shared::open(connected).await.map(Way::Shared)
            } else {
                Line::open(connected, pool).await.map(Way::Line)
            };
            way.map_err(|error| SendError::sending(&error, &uses))
        })
    }

    /// This runtime's.
    fn pool(&self) -> Arc<Pool> {
        let runtime = Handle::current();
        let make = || Pool::new(runtime.clone(), self.limits);
        let mut pool = self.pools.get_or(|| RefCell::new(make())).borrow_mut();
        // A thread may have run another before, or have taken the place of one that did.
        if !pool.is_of(&runtime) {
            *pool = make();
        }
        Arc::clone(&pool)
    }

    /// As HTTP/1.1 has it (RFC 9112, sections 3.2 and 3.2.1): the path in the request line, the server in a header.
    fn address(&self, request: &mut Request<RequestBody>) {
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = Uri::from(path.unwrap_or(PathAndQuery::from_static("/")));
        if let Some(host) = &self.host {
            let headers = request.headers_mut();
            headers.entry(HOST).or_insert_with(|| host.clone());
        }
    }
}

/// What a connection to a server that may speak HTTP/2 turned out to be.
fn note(pool: &Arc<Pool>, slot: &mut Slot, made: &Result<Way, SendError>) {
    match made {
        Ok(Way::Shared(shared)) => {
            slot.keep(shared);
            pool.set_chose_http1(false);
            pool.watch_slot();
        }
        Ok(Way::Line(_)) => pool.set_chose_http1(true),
        Err(error) => slot.fail(*error),
    }
}

/// The server's name, and its port where that is not the scheme's own.
fn host(uri: &Uri) -> Option<HeaderValue> {
    let name = uri.host()?;
    let default = match uri.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    let value = match uri.port_u16() {
        Some(port) if port != default => format!("{name}:{port}"),
        _ => name.to_owned(),
    };
    HeaderValue::try_from(value).ok()
}

#[cfg(test)]
mod tests;
