//! Paths of the operator's own that are forwarded to upstreams.
//!
//! They are looked at where no path of the gateway's own was asked for, one after the other: a configuration has some
//! hundred of them at most, and each costs no more than the request's path is long.

use std::sync::Arc;

use http::Method;
use percent_encoding::percent_decode_str;
use sluicegate_core::api::Api;
use sluicegate_relay::Replies;

use crate::endpoint::{Asks, Endpoint, Row, Target};

/// Stands for the model's name in a pattern, and in the path that a request goes up with.
const MODEL: &str = "{model}";

/// A path of the operator's own, or all paths that begin like it.
#[derive(Debug)]
pub struct Passthrough {
    pub(crate) row: Row,
    pattern: Pattern,
    methods: Box<[Method]>,
}

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goes {
    /// To this upstream, whatever the body is.
    Upstream(Box<str>),
    /// To the model that the member `model` of the body names, which is a JSON object.
    Json,
    /// To the model that the field `model` of the body names, which is a form.
    Form,
    /// To the model that the path names, whatever the body is.
    Path,
}

impl Passthrough {
    /// A path that logs, metrics and the rights of callers call `name`. None where it has a place for a model's name,
    /// and its model is named elsewhere or nowhere, or the other way round.
    #[must_use]
    pub fn new(name: String, pattern: Pattern, methods: Box<[Method]>, goes: Goes) -> Option<Self> {
        if pattern.names_model() != (goes == Goes::Path) {
            return None;
        }
        let (asks, upstream) = match goes {
            Goes::Upstream(upstream) => (Asks::Anything, Some(upstream)),
            Goes::Json => (Asks::Json, None),
            Goes::Form => (Asks::Form, None),
            Goes::Path => (Asks::Anything, None),
        };
        let row = Row {
            path: "",
            name: name.into(),
            api: Api::Other,
            asks,
            replies: Replies::Any,
            upstream,
        };
        Some(Self {
            row,
            pattern,
            methods,
        })
    }
}

/// Which paths are meant: `/v1/files`; `/v1/files/*` for that and everything below; `/v1/models/{model}/score`, or
/// `/models/{model}:embed`, with the model's name in one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    segments: Box<[Segment]>,
    /// What follows the segments may be anything.
    below: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Text(Box<str>),
    /// The model's name, with what is before and behind it.
    Model(Box<str>, Box<str>),
}

impl Pattern {
    /// None where `text` is no pattern.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let path = text.strip_prefix('/')?;
        let (path, below) = match path.strip_suffix("/*") {
            Some(path) => (path, true),
            None => (path, false),
        };
        let segment = |text: &str| match text.split_once(MODEL) {
            Some((before, behind)) => Segment::Model(before.into(), behind.into()),
            None => Segment::Text(text.into()),
        };
        let segments: Box<[_]> = path.split('/').map(segment).collect();
        let plain = |text: &str| !text.contains(['*', '{', '}', '?', '#', '%']);
        let mut models = 0;
        for segment in &segments {
            match segment {
                Segment::Text(text) if !text.is_empty() && plain(text) => {}
                Segment::Model(before, behind) if plain(before) && plain(behind) => models += 1,
                _ => return None,
            }
        }
        (models <= 1 && is_settled(text)).then_some(Self { segments, below })
    }

    /// Whether there is a place for a model's name in it.
    fn names_model(&self) -> bool {
        let mut segments = self.segments.iter();
        segments.any(|segment| matches!(segment, Segment::Model(..)))
    }

    /// What `path` is to be forwarded as, with a `{model}` where the model's name stands, and that name. None where it
    /// is another path.
    fn read(&self, path: &str) -> Option<(String, Option<Box<str>>)> {
        let mut up = String::with_capacity(path.len());
        let mut name = None;
        let mut rest = path;
        for segment in &self.segments {
            let given = rest.strip_prefix('/')?;
            let end = given.find('/').unwrap_or(given.len());
            let (given, behind) = given.split_at(end);
            up.push('/');
            match segment {
                Segment::Text(text) if **text == *given => up += text,
                Segment::Text(_) => return None,
                Segment::Model(before, after) => {
                    let spelled = given.strip_prefix(&**before)?.strip_suffix(&**after)?;
                    let spelled = percent_decode_str(spelled).decode_utf8().ok()?;
                    if spelled.is_empty() {
                        return None;
                    }
                    name = Some(spelled.into());
                    up += before;
                    up += MODEL;
                    up += after;
                }
            }
            rest = behind;
        }
        if !(rest.is_empty() || self.below) {
            return None;
        }
        // A client's own braces stand for nothing.
        for letter in rest.chars() {
            match letter {
                '{' => up += "%7B",
                '}' => up += "%7D",
                letter => up.push(letter),
            }
        }
        Some((up, name))
    }
}

/// Whether no server takes `path` for another one: it has no segment that is a step up or to the same place, however it
/// is spelled (RFC 3986, section 5.2.4).
fn is_settled(path: &str) -> bool {
    let plain: Vec<u8> = percent_decode_str(path).collect();
    plain
        .split(|byte| matches!(byte, b'/' | b'\\'))
        .all(|segment| {
            // Parameters of a segment are dropped by some, and then it is a step.
            let name = segment.split(|byte| *byte == b';').next();
            !matches!(name.unwrap_or_default(), b"." | b"..")
        })
}

/// All of them, in the configuration's order.
#[derive(Debug, Default)]
pub struct Passthroughs(Vec<Arc<Passthrough>>);

impl FromIterator<Passthrough> for Passthroughs {
    fn from_iter<T: IntoIterator<Item = Passthrough>>(all: T) -> Self {
        Self(all.into_iter().map(Arc::new).collect())
    }
}

impl Passthroughs {
    /// Where a request goes; None: to none of them. The first one that is meant is taken.
    pub(crate) fn find(&self, method: &Method, path: &str, query: Option<&str>) -> Option<Target> {
        let mut at = self
            .at(path)
            .filter(|(found, ..)| found.methods.contains(method));
        let (found, mut up, model) = at.next()?;
        if let Some(query) = query {
            up.push('?');
            up += query;
        }
        Some(Target {
            endpoint: Endpoint::own(found),
            method: method.clone(),
            path: up.into(),
            model,
        })
    }

    /// The methods that there are at `path`, each with the name of what is there.
    pub(crate) fn methods(&self, path: &str) -> Vec<(Method, String)> {
        let mut methods: Vec<(Method, String)> = Vec::new();
        for (found, ..) in self.at(path) {
            for method in &found.methods {
                if methods.iter().all(|(known, _)| known != method) {
                    methods.push((method.clone(), found.row.name.to_string()));
                }
            }
        }
        methods
    }

    fn at(
        &self,
        path: &str,
    ) -> impl Iterator<Item = (&Arc<Passthrough>, String, Option<Box<str>>)> {
        let all = if self.0.is_empty() || !is_settled(path) {
            &[]
        } else {
            &self.0[..]
        };
        all.iter().filter_map(move |own| {
            let (up, model) = own.pattern.read(path)?;
            Some((own, up, model))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn own(path: &str, methods: &[Method], goes: Goes) -> Passthrough {
        let pattern = Pattern::new(path).unwrap();
        Passthrough::new(path.into(), pattern, methods.into(), goes).unwrap()
    }

    /// What `pattern` makes of `path`.
    fn read(pattern: &str, path: &str) -> Option<(String, Option<Box<str>>)> {
        Pattern::new(pattern).unwrap().read(path)
    }

    fn up(pattern: &str, path: &str) -> Option<String> {
        read(pattern, path).map(|(up, _)| up)
    }

    #[test]
    fn a_path_is_itself_and_nothing_else() {
        assert_eq!(up("/v1/files", "/v1/files").unwrap(), "/v1/files");
        for other in [
            "/v1/files/",
            "/v1/file",
            "/v1/filesystem",
            "/v1",
            "/",
            "",
            "/V1/files",
        ] {
            assert_eq!(up("/v1/files", other), None, "{other}");
        }
    }

    #[test]
    fn a_star_is_everything_below_and_the_path_itself() {
        for path in [
            "/v1/files",
            "/v1/files/",
            "/v1/files/a/content",
            "/v1/files/a%2Fb//c",
        ] {
            assert_eq!(up("/v1/files/*", path).unwrap(), path);
        }
        for other in ["/v1/filesystem", "/v1/file", "/v1"] {
            assert_eq!(up("/v1/files/*", other), None, "{other}");
        }
    }

    #[test]
    fn a_model_is_one_segment_or_a_part_of_one() {
        let found = |pattern, path| {
            let (up, model) = read(pattern, path)?;
            Some((up, model?.into_string()))
        };
        let embeddings = "/v1/engines/{model}/embeddings";
        assert_eq!(
            found(embeddings, "/v1/engines/org%2Fname/embeddings").unwrap(),
            (embeddings.to_owned(), "org/name".to_owned())
        );
        assert_eq!(
            found("/models/{model}:embed", "/models/a:b:embed").unwrap(),
            ("/models/{model}:embed".to_owned(), "a:b".to_owned())
        );
        assert_eq!(
            found("/engines/{model}/*", "/engines/a/{model}").unwrap(),
            ("/engines/{model}/%7Bmodel%7D".to_owned(), "a".to_owned())
        );
        for other in [
            "/v1/engines//embeddings",
            "/v1/engines/a/b/embeddings",
            "/v1/engines/%ff/embeddings",
        ] {
            assert_eq!(read(embeddings, other), None, "{other}");
        }
        assert_eq!(read("/models/{model}:embed", "/models/:embed"), None);
    }

    #[test]
    fn a_step_out_of_a_path_is_not_below_it() {
        let all = Passthroughs::from_iter([own("/v1/files/*", &[Method::GET], Goes::Json)]);
        for path in [
            "/v1/files/../admin",
            "/v1/files/a/..",
            "/v1/files/./a",
            "/v1/files/%2e%2E/admin",
            "/v1/files/.%2e%2fadmin",
            "/v1/files/..%5Cadmin",
            "/v1/files/..;x=1/admin",
        ] {
            assert!(all.find(&Method::GET, path, None).is_none(), "{path}");
        }
        for path in [
            "/v1/files/...",
            "/v1/files/.hidden",
            "/v1/files/a..b",
            "/v1/files/a;..",
        ] {
            assert!(all.find(&Method::GET, path, None).is_some(), "{path}");
        }
    }

    proptest! {
        /// Whatever a client sends: what is forwarded stays below what the operator has named, for any server that
        /// takes escapes, empty segments and parameters off before it follows the steps.
        #[test]
        fn no_path_leads_out(path in r"(/|\.|%2e|%2E|%2f|\\|%5c|;|a|%61|\{model\}|%){0,12}") {
            let all = Passthroughs::from_iter([
                own("/v1/files/*", &[Method::GET], Goes::Json),
                own("/v1/{model}/*", &[Method::GET], Goes::Path),
            ]);
            for base in ["/v1/files/", "/v1/"] {
                let path = format!("{base}{path}");
                let Some(target) = all.find(&Method::GET, &path, None) else {
                    continue;
                };
                prop_assert!(target.path.starts_with("/v1/"));
                let named = target.model.is_some();
                prop_assert_eq!(target.path.matches(MODEL).count(), usize::from(named));
                let plain = percent_decode_str(&path).decode_utf8_lossy().replace('\\', "/");
                let mut depth = 0;
                for segment in plain.split('/').filter(|segment| !segment.is_empty()) {
                    match segment.split(';').next() {
                        Some("..") => depth -= 1,
                        Some(".") => {}
                        _ => depth += 1,
                    }
                    prop_assert!(depth > 0, "{path}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_pattern_is_none() {
        for text in [
            "",
            "v1/files",
            "/",
            "/*",
            "//a",
            "/a/",
            "/a*",
            "/*/a",
            "/a/*/b",
            "/{model}/{model}",
            "/{model",
            "/{name}",
            "/a?b",
            "/a%20b",
            "/a/../b",
            "/a/**",
        ] {
            assert_eq!(Pattern::new(text), None, "{text}");
        }
    }

    #[test]
    fn the_first_that_has_the_method_is_taken() {
        let all = Passthroughs::from_iter([
            own("/v1/files", &[Method::POST], Goes::Upstream("a".into())),
            own(
                "/v1/files/*",
                &[Method::GET, Method::POST],
                Goes::Upstream("b".into()),
            ),
        ]);
        let upstream = |method, path| {
            let target = all.find(&method, path, Some("x=1&y"))?;
            assert_eq!(*target.path, format!("{path}?x=1&y"));
            target.endpoint.upstream().map(str::to_owned)
        };
        assert_eq!(upstream(Method::POST, "/v1/files").unwrap(), "a");
        assert_eq!(upstream(Method::GET, "/v1/files").unwrap(), "b");
        assert_eq!(upstream(Method::POST, "/v1/files/1").unwrap(), "b");
        assert_eq!(upstream(Method::DELETE, "/v1/files/1"), None);
        let methods = all.methods("/v1/files");
        let names = |of: Vec<(Method, String)>| {
            of.into_iter()
                .map(|(method, name)| format!("{method} {name}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(methods), ["POST /v1/files", "GET /v1/files/*"]);
        assert!(all.methods("/v1/batches").is_empty());
    }

    #[test]
    fn only_what_may_be_done_twice_is_repeated() {
        let endpoint = |goes| Endpoint::own(&Arc::new(own("/v1/files", &[], goes)));
        let (files, classify) = (endpoint(Goes::Upstream("a".into())), endpoint(Goes::Json));
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            assert!(files.may_repeat(&method), "{method}");
        }
        for method in [Method::POST, Method::PATCH] {
            assert!(!files.may_repeat(&method), "{method}");
            assert!(classify.may_repeat(&method), "{method}");
        }
    }

    #[test]
    fn a_model_is_named_in_one_place() {
        for (path, goes) in [("/a", Goes::Path), ("/{model}", Goes::Json)] {
            let pattern = Pattern::new(path).unwrap();
            assert!(Passthrough::new("a".into(), pattern, [].into(), goes).is_none());
        }
    }
}
