//! The account of an exchange: it hears of each upstream before that is asked, and is closed once, whatever happens.
#![allow(clippy::unwrap_used, clippy::panic)] // What fails here fails the test.

mod support;

use std::sync::{Arc, Mutex};

use sluicegate_relay::{FaultKind, Pricing};
use support::{
    Answer, PATIENCE, Server, Setup, Tallied, Way, both_ways, chat_chunk, head, upstream,
};

const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n";

fn serving() -> Server {
    upstream(|_| {
        let events = [
            chat_chunk("a", "null"),
            chat_chunk("b", "null"),
            chat_chunk("c", "\"stop\""),
            USAGE.to_owned(),
            "data: [DONE]\n\n".to_owned(),
        ];
        let reply = head("text/event-stream") + &events.concat();
        vec![Answer::Write(reply.into_bytes()), Answer::Close]
    })
}

fn kept(setup: &mut Setup) -> Arc<Mutex<Vec<Tallied>>> {
    let told = Arc::new(Mutex::new(Vec::new()));
    setup.tallied = Some(Arc::clone(&told));
    told
}

fn told(account: &Mutex<Vec<Tallied>>) -> Vec<Tallied> {
    account.lock().unwrap().clone()
}

fn an_account_hears_of_the_attempt_the_tokens_and_the_end(way: Way) {
    let server = serving();
    let mut setup = Setup::streaming(way, &server);
    let account = kept(&mut setup);
    let seen = setup.run();
    assert_eq!(seen.outcome.status, 200);
    let told = told(&account);
    assert_eq!(told.first(), Some(&Tallied::Attempt("theirs".into())));
    let progress: Vec<_> = told
        .iter()
        .filter(|what| matches!(what, Tallied::Progress(..)))
        .collect();
    let Some(Tallied::Progress(3, bytes, Some(3), true)) = progress.last() else {
        panic!("the last of {progress:?}")
    };
    assert_eq!(*bytes, seen.outcome.bytes_in);
    let end = &told[told.len() - 2..];
    assert_eq!(end, [Tallied::Closed(200, None), Tallied::Dropped]);
}

fn an_account_hears_of_every_attempt_before_it_is_made(way: Way) {
    let (broken, server) = (upstream(|_| vec![Answer::Close]), serving());
    let mut setup = Setup::streaming(way, &broken);
    setup.fallback = vec![server.base_url()];
    let account = kept(&mut setup);
    assert_eq!(setup.run().outcome.status, 200);
    let told = told(&account);
    let attempts = told
        .iter()
        .filter(|what| matches!(what, Tallied::Attempt(_)))
        .count();
    assert_eq!(
        (attempts, told.contains(&Tallied::Closed(200, None))),
        (2, true)
    );
}

fn an_account_is_closed_where_everything_fails(way: Way) {
    let broken = upstream(|_| vec![Answer::Close]);
    let mut setup = Setup::streaming(way, &broken);
    let account = kept(&mut setup);
    assert_eq!(setup.run().outcome.status, 502);
    let told = told(&account);
    let end = &told[told.len() - 2..];
    assert_eq!(
        end,
        [
            Tallied::Closed(502, Some(FaultKind::Reset)),
            Tallied::Dropped
        ]
    );
}

fn an_account_is_closed_where_the_client_leaves(way: Way) {
    let server = upstream(|_| {
        let begun = head("text/event-stream") + &chat_chunk("a", "null");
        vec![Answer::Write(begun.into_bytes()), Answer::Stall]
    });
    let mut setup = Setup::streaming(way, &server);
    setup.orders.leave_after_first_frame = true;
    let account = kept(&mut setup);
    assert!(setup.run().outcome.client_left);
    server.wait_closed(PATIENCE);
    let told = told(&account);
    assert!(told.contains(&Tallied::Closed(200, None)), "{told:?}");
    assert_eq!(told.last(), Some(&Tallied::Dropped));
}

fn an_account_whose_price_is_asked_for_is_closed_by_whoever_says_it(way: Way) {
    let server = serving();
    let mut setup = Setup::streaming(way, &server);
    setup.pricing = Pricing::Asked;
    let account = kept(&mut setup);
    setup.run();
    let told = told(&account);
    let end = &told[told.len() - 3..];
    assert_eq!(
        end,
        [
            Tallied::Charged,
            Tallied::Closed(200, None),
            Tallied::Dropped
        ]
    );
}

both_ways!(
    an_account_hears_of_the_attempt_the_tokens_and_the_end,
    an_account_hears_of_every_attempt_before_it_is_made,
    an_account_is_closed_where_everything_fails,
    an_account_is_closed_where_the_client_leaves,
    an_account_whose_price_is_asked_for_is_closed_by_whoever_says_it,
);
