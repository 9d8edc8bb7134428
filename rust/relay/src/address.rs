//! Where an upstream has its endpoints: where clients find them, or where its settings say.

use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sluicegate_core::api::Api;
use sluicegate_core::protocols;

/// Stands for the upstream's name of the model in a path.
const MODEL: &str = "{model}";

/// What a name has as it is within one segment of a path (RFC 3986, section 3.3). Not the colon, which Vertex puts
/// between a model and what is to be done with it.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'@');

/// What differs from the usual paths.
#[derive(Debug, Clone, Default)]
pub struct Paths {
    /// By the path at which clients find an endpoint (`/v1/chat/completions`): the one that it has below the base URL,
    /// with `{model}` for the upstream's name of the model.
    pub paths: Vec<(Box<str>, Box<str>)>,
    /// The same for requests that ask for a stream, where theirs is another one.
    pub stream_paths: Vec<(Box<str>, Box<str>)>,
    /// The query of each request, without its question mark; empty: none.
    pub query: Box<str>,
}

/// Where one request goes.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) uri: Uri,
    /// The path says which model is meant: the body need not.
    pub(crate) names_model: bool,
}

/// The addresses of one upstream.
#[derive(Debug)]
pub(crate) struct Addresses {
    base: Box<str>,
    paths: Paths,
    /// Those of the usual paths that no setting changes.
    usual: Vec<(&'static str, Uri)>,
}

impl Addresses {
    /// None where one of them is no URI.
    pub(crate) fn new(base_url: &str, paths: Paths) -> Option<Self> {
        let mut addresses = Self {
            base: base_url.trim_end_matches('/').into(),
            paths,
            usual: Vec::new(),
        };
        let usual: Vec<&'static str> = Api::ALL
            .into_iter()
            .map(|api| protocols::of(api).path())
            .filter(|path| !path.is_empty())
            .collect();
        let settings = [&addresses.paths.paths, &addresses.paths.stream_paths];
        let changed = settings.into_iter().flatten().map(|(path, _)| &**path);
        for path in usual.iter().copied().chain(changed) {
            for streams in [false, true] {
                addresses.of(path, "model", streams)?;
            }
        }
        let plain: Option<Vec<_>> = usual
            .into_iter()
            .filter(|path| addresses.path(path, true).is_none())
            .map(|path| Some((path, addresses.of(path, "", false)?.uri)))
            .collect();
        addresses.usual = plain?;
        Some(addresses)
    }

    /// Where a request for `model` to the endpoint at `path` goes, which may have a query of the client's. None for a
    /// model that no path can name.
    pub(crate) fn of(&self, path: &str, model: &str, streams: bool) -> Option<Address> {
        if let Some((_, uri)) = self.usual.iter().find(|(usual, _)| *usual == path) {
            return Some(Address {
                uri: uri.clone(),
                names_model: false,
            });
        }
        let (path, asked) = path.split_once('?').unwrap_or((path, ""));
        let own = self.path(path, streams);
        let there = own.unwrap_or(path);
        let names_model = there.contains(MODEL);
        // Servers take such segments for steps to other paths.
        if names_model && matches!(model, "" | "." | "..") {
            return None;
        }
        let named = names_model.then(|| {
            let model = utf8_percent_encode(model, SEGMENT).to_string();
            there.replace(MODEL, &model)
        });
        let there = named.as_deref().unwrap_or(there);
        let mut uri = match own {
            Some(_) => format!("{}{there}", self.base),
            None => place(&self.base, there),
        };
        let queries = [&*self.paths.query, asked];
        let mut mark = '?';
        for query in queries.into_iter().filter(|query| !query.is_empty()) {
            uri.push(mark);
            uri += query;
            mark = '&';
        }
        Some(Address {
            uri: uri.parse().ok()?,
            names_model,
        })
    }

    /// The path in place of the usual one.
    fn path(&self, usual: &str, streams: bool) -> Option<&str> {
        let streaming = &self.paths.stream_paths;
        let found = streaming
            .iter()
            .filter(|_| streams)
            .chain(&self.paths.paths)
            .find(|(known, _)| **known == *usual);
        found.map(|(_, path)| &**path)
    }
}

const VERSION: &str = "/v1";

/// Where a server with this base URL has `path`: what begins with `/v1` is below the base, which stands for that;
/// everything else (`/tokenize`, `/v2/rerank`) is beside it, at the server's root.
fn place(base: &str, path: &str) -> String {
    match path.strip_prefix(VERSION) {
        Some(below) if below.starts_with('/') => format!("{base}{below}"),
        _ => format!("{}{path}", base.strip_suffix(VERSION).unwrap_or(base)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(of: &[(&str, &str)]) -> Vec<(Box<str>, Box<str>)> {
        of.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect()
    }

    #[test]
    fn the_base_stands_for_v1() {
        for (base, path, there) in [
            ("http://a/v1", "/v1/rerank", "http://a/v1/rerank"),
            ("http://a/v1", "/rerank", "http://a/rerank"),
            ("http://a/v1", "/v2/rerank", "http://a/v2/rerank"),
            ("http://a/v1", "/v1beta/x", "http://a/v1beta/x"),
            ("http://a/x/v1", "/tokenize", "http://a/x/tokenize"),
            (
                "http://a/openai",
                "/v1/embeddings",
                "http://a/openai/embeddings",
            ),
            ("http://a/openai", "/tokenize", "http://a/openai/tokenize"),
        ] {
            assert_eq!(place(base, path), there);
        }
    }

    fn azure() -> Addresses {
        let paths = Paths {
            paths: pairs(&[(
                "/v1/chat/completions",
                "/openai/deployments/{model}/chat/completions",
            )]),
            stream_paths: Vec::new(),
            query: "api-version=2024-10-21".into(),
        };
        Addresses::new("https://r.example/", paths).unwrap()
    }

    fn asked(addresses: &Addresses, path: &str, model: &str, streams: bool) -> String {
        addresses.of(path, model, streams).unwrap().uri.to_string()
    }

    #[test]
    fn endpoints_are_below_the_base_url_with_the_clients_query() {
        let addresses = Addresses::new("http://h/v1/", Paths::default()).unwrap();
        assert_eq!(
            asked(&addresses, "/v1/responses", "m", true),
            "http://h/v1/responses"
        );
        assert_eq!(
            asked(&addresses, "/v1/messages?beta=true", "m", true),
            "http://h/v1/messages?beta=true"
        );
        assert_eq!(
            asked(&addresses, "/v1/messages/count_tokens", "..", true),
            "http://h/v1/messages/count_tokens"
        );
    }

    #[test]
    fn a_path_may_name_the_model() {
        let addresses = azure();
        let address = addresses
            .of("/v1/chat/completions", "gpt 4/o?#%é", false)
            .unwrap();
        assert_eq!(
            address.uri,
            "https://r.example/openai/deployments/gpt%204%2Fo%3F%23%25%C3%A9/chat/completions?api-version=2024-10-21"
        );
        assert!(address.names_model);
        let address = addresses.of("/v1/embeddings", "m", false).unwrap();
        assert_eq!(
            address.uri,
            "https://r.example/embeddings?api-version=2024-10-21"
        );
        assert!(!address.names_model);
        assert_eq!(
            asked(&addresses, "/v1/messages?beta=true", "m", true),
            "https://r.example/messages?api-version=2024-10-21&beta=true"
        );
    }

    #[test]
    fn a_clients_path_may_name_the_model_too() {
        let addresses = Addresses::new("http://h/v1", Paths::default()).unwrap();
        let path = "/v1/engines/{model}/embeddings?a={model}";
        let address = addresses.of(path, "org/name", false).unwrap();
        assert_eq!(
            address.uri,
            "http://h/v1/engines/org%2Fname/embeddings?a={model}"
        );
        assert!(address.names_model);
        assert!(addresses.of(path, "..", false).is_none());
        let elsewhere = Paths {
            paths: pairs(&[("/v1/engines/{model}/embeddings", "/embed/{model}")]),
            ..Paths::default()
        };
        let addresses = Addresses::new("http://h/v1", elsewhere).unwrap();
        assert_eq!(
            asked(&addresses, path, "a", false),
            "http://h/v1/embed/a?a={model}"
        );
    }

    #[test]
    fn no_model_leads_to_another_path() {
        for model in ["", ".", ".."] {
            assert!(
                azure().of("/v1/chat/completions", model, true).is_none(),
                "{model}"
            );
        }
    }

    #[test]
    fn streams_may_have_a_path_of_their_own() {
        let paths = Paths {
            paths: pairs(&[
                ("/v1/messages", "/models/{model}:rawPredict"),
                (
                    "/v1/messages/count_tokens",
                    "/models/count-tokens:rawPredict",
                ),
            ]),
            stream_paths: pairs(&[("/v1/messages", "/models/{model}:streamRawPredict")]),
            query: "".into(),
        };
        let addresses = Addresses::new("https://v.example/p", paths).unwrap();
        assert_eq!(
            asked(&addresses, "/v1/messages", "claude@1", false),
            "https://v.example/p/models/claude@1:rawPredict"
        );
        assert_eq!(
            asked(&addresses, "/v1/messages?beta=true", "a:b", true),
            "https://v.example/p/models/a%3Ab:streamRawPredict?beta=true"
        );
        let counting = addresses
            .of("/v1/messages/count_tokens", "claude", true)
            .unwrap();
        assert_eq!(counting.uri.path(), "/p/models/count-tokens:rawPredict");
        assert!(!counting.names_model);
    }

    #[test]
    fn what_is_no_uri_is_refused_at_once() {
        for (path, query) in [("/a b", ""), ("/a", "b c")] {
            let paths = Paths {
                paths: pairs(&[("/v1/audio/speech", path)]),
                stream_paths: Vec::new(),
                query: query.into(),
            };
            assert!(
                Addresses::new("http://h/v1", paths).is_none(),
                "{path} {query}"
            );
        }
    }
}
