//! Of a trial the director is told when its first output has come, once; of other attempts it is not.
#![allow(clippy::unwrap_used, clippy::panic)] // What fails here fails the test.

mod support;

use std::sync::atomic::Ordering;
use std::time::Instant;

use sluicegate_core::api::Api;
use support::{
    Answer, DONE, PATIENCE, Server, Setup, Way, both_ways, chat_chunk, engines, finished, head,
    stream, upstream,
};

fn trial(way: Way, server: &Server) -> Setup {
    let mut setup = Setup::streaming(way, server);
    setup.trial = true;
    setup
}

fn told(setup: &Setup) -> usize {
    setup.outputs.load(Ordering::Acquire)
}

fn answering(bytes: Vec<u8>) -> Server {
    upstream(move |_| vec![Answer::Write(bytes.clone()), Answer::Close])
}

fn it_is_told_while_the_stream_goes_on(way: Way) {
    let events = [
        chat_chunk("", "null"),
        chat_chunk("a", "null"),
        chat_chunk("b", "null"),
    ];
    let bytes = stream(&events);
    let server = upstream(move |_| vec![Answer::Write(bytes.clone()), Answer::Stall]);
    let setup = trial(way, &server);
    let engines = engines();
    let running = setup.submit(&engines, &setup.attempt());
    let begun = Instant::now();
    while told(&setup) == 0 {
        assert!(begun.elapsed() < PATIENCE, "it was not told");
        std::thread::yield_now();
    }
    running.leave();
    assert!(running.wait().outcome.client_left);
    assert_eq!(told(&setup), 1);
}

fn of_other_attempts_it_is_not_told(way: Way) {
    let server = answering(stream(&finished()));
    let setup = Setup::streaming(way, &server);
    assert_eq!(setup.run().outcome.status, 200);
    assert_eq!(told(&setup), 0);
}

fn what_comes_before_output_is_not_told(way: Way) {
    let server = answering(stream(&[": alive\n\n".to_owned(), chat_chunk("", "null")]));
    let setup = trial(way, &server);
    assert!(setup.run().outcome.fault.is_some());
    assert_eq!(told(&setup), 0);
}

fn an_error_in_place_of_output_is_not_told(way: Way) {
    let error = "data: {\"error\":{\"message\":\"no\",\"code\":500}}\n\n";
    let server = answering(stream(&[error.to_owned(), DONE.to_owned()]));
    let setup = trial(way, &server);
    assert!(setup.run().outcome.fault.is_some());
    assert_eq!(told(&setup), 0);
}

fn a_reply_that_comes_whole_is_output(way: Way) {
    let body = r#"{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}"#;
    let length = format!("application/json\r\ncontent-length: {}", body.len());
    let server = answering((head(&length) + body).into_bytes());
    let mut setup = trial(way, &server);
    setup.client_streams = false;
    assert_eq!(setup.run().outcome.status, 200);
    assert_eq!(told(&setup), 1);
}

fn each_trial_of_a_request_tells_of_its_own(way: Way) {
    // Folded for a client that does not stream, so nothing has reached it when the first one breaks off.
    let broken = answering(stream(&[chat_chunk("a", "null")]));
    let server = answering(stream(&finished()));
    let mut setup = trial(way, &broken);
    setup.client_streams = false;
    setup.fallback = vec![server.base_url()];
    assert_eq!(setup.run().outcome.attempts, 2);
    assert_eq!(told(&setup), 2);
}

fn a_translated_reply_is_told_like_others(way: Way) {
    let server = answering(stream(&finished()));
    let mut setup = trial(way, &server);
    setup.api = Api::Responses;
    assert_eq!(setup.run().outcome.status, 200);
    assert_eq!(told(&setup), 1);
}

both_ways!(
    it_is_told_while_the_stream_goes_on,
    of_other_attempts_it_is_not_told,
    what_comes_before_output_is_not_told,
    an_error_in_place_of_output_is_not_told,
    a_reply_that_comes_whole_is_output,
    each_trial_of_a_request_tells_of_its_own,
    a_translated_reply_is_told_like_others,
);
