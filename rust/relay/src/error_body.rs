//! What is kept, and passed on, of an upstream's error body.

use bytes::Bytes;
use sluicegate_core::json::node::Node;
use sluicegate_core::json::scan::Kind;
use sluicegate_core::json::writer::Writer;
use sluicegate_core::record;

/// The most that is read of one, in bytes: what is longer is cut, and then it is no JSON.
pub(crate) const MOST_READ: usize = 1024 * 1024;

/// Up to so many bytes it is passed on as it is. Those that were recorded have some hundred; servers that repeat what
/// was wrong with a request may need many times that. It is held as long as another upstream serves the request, by
/// each request that it befell.
pub(crate) const MOST_KEPT: usize = 64 * 1024;

/// All of `body`, or, where it is larger than [`MOST_KEPT`], an error object with what it says in short. Empty where it
/// says nothing.
pub(crate) fn kept(body: Bytes) -> Bytes {
    if body.len() <= MOST_KEPT {
        return body;
    }
    Node::document(&body).map_or_else(Bytes::new, shortened)
}

fn shortened(document: Node<'_>) -> Bytes {
    let [error, detail] = document.pick(["error", "detail"]);
    let object = error.filter(|error| error.kind() == Kind::Object);
    let [message, kind, code] = object.unwrap_or(document).pick(["message", "type", "code"]);
    let said = [message, error, detail];
    let Some(message) = said.into_iter().flatten().find_map(|said| said.decode()) else {
        return Bytes::new();
    };
    let mut out = Writer::with_capacity(1024);
    out.open(b'{');
    out.key("error");
    out.open(b'{');
    out.key("message");
    out.text(&record::cut(&message));
    for (name, value) in [("type", kind), ("code", code)] {
        if let Some(text) = value.and_then(|value| value.decode()) {
            out.key(name);
            out.text(&record::cut(&text));
        }
    }
    out.close(b'}');
    out.close(b'}');
    out.into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept of `{…}`, with `long` where it says LONG.
    fn of(text: &str) -> String {
        let body = text.replace("LONG", &"é".repeat(MOST_KEPT));
        String::from_utf8(kept(body.into()).to_vec()).unwrap()
    }

    fn cut(text: &str) -> String {
        text.replace("CUT", &format!("{}…", "é".repeat(512)))
    }

    #[test]
    fn an_ordinary_body_is_kept_as_it_is() {
        let body = Bytes::from(vec![b'x'; MOST_KEPT]);
        assert_eq!(kept(body.clone()), body);
    }

    #[test]
    fn a_large_one_is_said_in_short() {
        let whole = r#"{"object":"error","error":{"message":"LONG","type":"LONG","code":"bad","param":"x"}}"#;
        let short = r#"{"error":{"message":"CUT","type":"CUT","code":"bad"}}"#;
        assert_eq!(of(whole), cut(short));
        assert_eq!(
            of(r#"{"error":{"message":"Wrong.","code":400,"input":"LONG"}}"#),
            r#"{"error":{"message":"Wrong."}}"#
        );
    }

    #[test]
    fn all_forms_of_an_error_have_a_message() {
        let short = r#"{"error":{"message":"CUT"}}"#;
        for whole in [
            r#"{"error":"LONG"}"#,
            r#"{"message":"LONG"}"#,
            r#"{"detail":"LONG"}"#,
        ] {
            assert_eq!(of(whole), cut(short), "{whole}");
        }
        assert_eq!(
            of(r#"{"object":"error","message":"Wrong.","type":"bad","more":"LONG"}"#),
            r#"{"error":{"message":"Wrong.","type":"bad"}}"#
        );
    }

    #[test]
    fn what_says_nothing_is_not_kept() {
        for whole in [
            "<html>LONG</html>",
            r#"{"error":{"message":"LONG"#,
            r#"["LONG"]"#,
            r#""LONG""#,
            r#"{"error":{"message":["LONG"]}}"#,
        ] {
            assert_eq!(of(whole), "", "{whole}");
        }
    }
}
