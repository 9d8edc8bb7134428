//! The front as a whole: its threads, its listeners, and requests that another ASGI server has read.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::{HeaderMap, Method};
use rustls::ServerConfig;
use sluicegate_relay::{Engines, Reply, add_request_id, reply};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::accept::{self, Accepting};
use crate::arrival::{self, Arranged, Arrival};
use crate::asked;
use crate::bounds::{Bounds, Limits};
use crate::callers::{Callers, Presented};
use crate::carried;
use crate::clock::Times;
use crate::decisions::{About, Decisions, Event};
use crate::endpoint::Target;
use crate::facts::Wanted;
use crate::passthrough::Passthroughs;
use crate::refusal::Refusal;
use crate::report::{InFlight, Report};
use crate::state::{FrontState, Listening};

/// A request without a connection: from another server, or from the gateway itself.
pub struct Submission {
    /// Where it goes: see [`Front::target`].
    pub target: Target,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// Its id.
    pub request_id: Box<str>,
    /// Given back with its events. A request with one presents no key.
    pub tag: Option<u64>,
}

/// A [`Submission`] on its way.
pub struct Submitted {
    /// Its number.
    pub ticket: u64,
    /// Its reply. Dropping it is leaving.
    pub reply: Reply,
}

/// The engine threads, and all that they serve.
pub struct Front {
    engines: Engines,
    state: Arc<FrontState>,
}

impl Front {
    /// Start `threads` engines. No caller is accepted until [`set_callers`](Self::set_callers) has been called.
    ///
    /// # Errors
    /// Where the system gives no thread or no event queue.
    pub fn start(threads: usize, limits: Limits, decisions: Arc<Decisions>) -> io::Result<Self> {
        let events = Arc::clone(&decisions);
        let engines = Engines::start(threads, move |message| events.push(Event::Died(message)))?;
        let state = FrontState::new(limits, decisions);
        Ok(Self {
            engines,
            state: Arc::new(state),
        })
    }

    /// Who may call from now on.
    pub fn set_callers(&self, callers: Callers) {
        self.state.set_callers(callers);
    }

    /// What is found out of each request from now on, for policies. At first nothing.
    pub fn set_wanted(&self, wanted: Wanted) {
        self.state.set_wanted(wanted);
    }

    /// The operator's own paths from now on. At first there are none.
    pub fn set_passthroughs(&self, passthroughs: Passthroughs) {
        self.state.set_passthroughs(passthroughs);
    }

    /// Where a request for `path`, with this query, goes; None: to no upstream.
    #[must_use]
    pub fn target(&self, method: &Method, path: &str, query: Option<&str>) -> Option<Target> {
        self.state.target(method, path, query)
    }

    /// The methods that the operator's own paths have at `path`, each with the endpoint's name.
    #[must_use]
    pub fn passthrough_methods(&self, path: &str) -> Vec<(Method, String)> {
        self.state.settings().passthroughs.methods(path)
    }

    /// Accept at `address`, each thread on a socket of its own (SO_REUSEPORT), among which the system spreads
    /// connections. All that is not forwarded goes to the Unix socket `application`.
    ///
    /// # Errors
    /// Where the address cannot be had.
    pub fn listen(
        &self,
        address: SocketAddr,
        application: PathBuf,
        http2: bool,
        tls: Option<Arc<ServerConfig>>,
        bounds: Bounds,
    ) -> io::Result<()> {
        let listening = Arc::new(Listening {
            times: Times {
                head: bounds.head_time,
                idle: bounds.idle,
                stall: bounds.stall,
                resets: bounds.http2_resets,
            },
            room: Arc::new(Semaphore::new(
                bounds.connections.min(Semaphore::MAX_PERMITS),
            )),
            passed: InFlight::default(),
            bounds,
            http2,
            tls,
            application,
        });
        // All of them, before the first accepts.
        let sockets = self.engines.all().iter().map(|_| listener(address));
        let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
        for (engine, socket) in self.engines.all().iter().zip(sockets) {
            let (state, listening) = (Arc::clone(&self.state), Arc::clone(&listening));
            let accepting = Accepting::new(state);
            engine.spawn(accept::accept(socket, engine.clone(), accepting, listening));
        }
        Ok(())
    }

    /// Send a request on its way that has no connection of ours.
    pub fn submit(&self, submission: Submission) -> Submitted {
        let engine = self.engines.any().clone();
        let state = Arc::clone(&self.state);
        let (mut sink, reply) = reply(state.limits.client_buffer);
        let ticket = state.decisions.next_ticket();
        let headers = submission.headers;
        let request_id = submission.request_id;
        let about = About {
            ticket,
            tag: submission.tag,
            form: submission.target.endpoint.form(&headers),
            endpoint: Some(submission.target.endpoint.clone()),
            request_id: request_id.clone(),
            key: Presented::in_headers(&headers).digest,
        };
        let entered = state.in_flight.enter(state.limits.max_requests);
        let overloaded = entered.is_none();
        let decisions = Arc::clone(&state.decisions);
        let report = Report::new(Arc::new(about), Instant::now(), decisions, entered);
        let on = engine.clone();
        engine.spawn(async move {
            let arranged = async {
                if overloaded {
                    return Arranged::Refused(arrival::refuse(report, Refusal::Overloaded));
                }
                let (target, body) = (submission.target, submission.body);
                let size = body.len();
                let wanted = &state.settings().wanted;
                let parsed = asked::parse(&target, &headers, body, wanted).await;
                let (request, facts) = match parsed {
                    Ok(parsed) => parsed,
                    Err(refusal) => {
                        return Arranged::Refused(arrival::refuse(report, refusal));
                    }
                };
                let arrival = Arrival {
                    target,
                    headers,
                    size,
                    request,
                    facts,
                    report,
                };
                arrival.arrange(&on).await
            };
            let arranged = tokio::select! {
                arranged = arranged => arranged,
                () = std::future::poll_fn(|cx| sink.poll_left(cx)) => return,
            };
            match arranged {
                Arranged::Refused(mut reply) => {
                    add_request_id(&mut reply.headers, &request_id);
                    sink.start(reply.status, reply.headers);
                    sink.push(&mut vec![reply.body]);
                    sink.end();
                }
                Arranged::Forward(forwarding) => {
                    let exchange = forwarding.into_exchange(sink, &state.limits);
                    carried::run(exchange, &on, &state.limits);
                }
            }
        });
        Submitted { ticket, reply }
    }

    /// Accept what waits, and no more; connections end after the reply under way, or after their first.
    pub fn drain(&self) {
        self.state.draining.give();
    }

    /// End every exchange, and the threads. Idempotent; blocks until the threads are gone.
    pub fn close(&self) {
        self.state.draining.give();
        self.engines.close();
    }

    /// Exchanges under way.
    #[must_use]
    pub fn active(&self) -> usize {
        self.engines
            .all()
            .first()
            .map_or(0, |engine| engine.active())
    }

    /// Clients' connections. While the gateway drains a listening socket counts as one, too, until all that waited in
    /// its queue has been accepted.
    #[must_use]
    pub fn connections(&self) -> usize {
        // A connection is counted before its listener is not counted any more.
        let accepting = self.state.accepting.load(Ordering::Acquire);
        let connections = self.state.connections.load(Ordering::Acquire);
        if self.state.draining.is_given() {
            connections + accepting
        } else {
            connections
        }
    }
}

fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // A gateway that is started again must not wait for the connections of the one before to be forgotten.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(accept::BACKLOG)?;
    Ok(socket.into())
}
