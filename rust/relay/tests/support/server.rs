//! A scripted upstream on plain sockets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What the upstream does next.
#[derive(Clone)]
pub(crate) enum Answer {
    Write(Vec<u8>),
    Wait(Duration),
    /// Say nothing until the peer closes.
    Stall,
    /// Write this again and again until the peer closes.
    Repeat(Vec<u8>, Duration),
    /// Wait for another request on the same connection.
    NextRequest,
    Close,
}

pub(crate) struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    closed: Receiver<Instant>,
}

impl Server {
    pub(crate) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// When a peer closed a connection that stalled.
    pub(crate) fn wait_closed(&self, patience: Duration) -> Instant {
        self.closed
            .recv_timeout(patience)
            .expect("the gateway did not close the connection")
    }
}

/// Serve connections; `script` says what each does, by its number.
pub(crate) fn upstream(script: impl Fn(usize) -> Vec<Answer> + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let (closed_tx, closed) = channel();
    let log = Arc::clone(&requests);
    thread::spawn(move || {
        for (nth, stream) in listener.incoming().enumerate() {
            let (script, log, closed) = (script(nth), Arc::clone(&log), closed_tx.clone());
            let Ok(stream) = stream else { return };
            thread::spawn(move || serve(stream, script, &log, &closed));
        }
    });
    Server {
        port,
        requests,
        closed,
    }
}

fn serve(
    mut stream: TcpStream,
    script: Vec<Answer>,
    log: &Mutex<Vec<String>>,
    closed: &Sender<Instant>,
) {
    stream.set_nodelay(true).unwrap();
    if !read_request(&mut stream, log) {
        return;
    }
    for answer in script {
        match answer {
            Answer::Write(bytes) => {
                if stream.write_all(&bytes).is_err() {
                    return;
                }
            }
            Answer::Wait(time) => thread::sleep(time),
            Answer::Stall => {
                let mut byte = [0];
                let _ = stream.read(&mut byte);
                let _ = closed.send(Instant::now());
            }
            Answer::Repeat(bytes, pace) => {
                while stream.write_all(&bytes).is_ok() {
                    thread::sleep(pace);
                }
            }
            Answer::NextRequest => {
                if !read_request(&mut stream, log) {
                    return;
                }
            }
            Answer::Close => {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

fn read_request(stream: &mut TcpStream, log: &Mutex<Vec<String>>) -> bool {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(head) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&bytes).to_lowercase();
            let length = text
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |n| n.trim().parse::<usize>().unwrap());
            if bytes.len() >= head + 4 + length {
                log.lock()
                    .unwrap()
                    .push(String::from_utf8_lossy(&bytes).into_owned());
                return true;
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return false,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
        }
    }
}

pub(crate) fn head(content_type: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\n\r\n")
}

pub(crate) fn chat_chunk(content: &str, finish: &str) -> String {
    format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}},\"finish_reason\":{finish}}}]}}\n\n"
    )
}

/// `events` in a content coding, flushed but not ended.
pub(crate) fn compressed(coding: &str, events: &[String]) -> Vec<u8> {
    use async_compression::tokio::write::{BrotliEncoder, GzipEncoder, ZlibEncoder, ZstdEncoder};
    use tokio::io::{AsyncWrite, AsyncWriteExt};

    async fn run(mut encoder: impl AsyncWrite + Unpin, text: String) {
        encoder.write_all(text.as_bytes()).await.unwrap();
        encoder.flush().await.unwrap();
    }

    let text = events.concat();
    let mut out = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        match coding {
            "gzip" => run(GzipEncoder::new(&mut out), text).await,
            "deflate" => run(ZlibEncoder::new(&mut out), text).await,
            "br" => run(BrotliEncoder::new(&mut out), text).await,
            _ => run(ZstdEncoder::new(&mut out), text).await,
        }
    });
    out
}

/// `events` as one Zstandard frame whose window is of `1 << window_log` bytes.
pub(crate) fn zstd(window_log: u32, events: &[String]) -> Vec<u8> {
    use async_compression::tokio::write::ZstdEncoder;
    use async_compression::{Level, zstd::CParameter};
    use tokio::io::AsyncWriteExt;

    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let window = CParameter::window_log(window_log);
        let mut encoder =
            ZstdEncoder::with_quality_and_params(Vec::new(), Level::Fastest, &[window]);
        for event in events {
            encoder.write_all(event.as_bytes()).await.unwrap();
            // A frame that is written at once has a window no larger than itself.
            encoder.flush().await.unwrap();
        }
        encoder.shutdown().await.unwrap();
        encoder.into_inner()
    })
}
