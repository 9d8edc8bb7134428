//! Turns of a conversation that are kept, a request and its response each: listed, referred to, and repeated before a
//! further request.
//!
//! Nothing is kept of the items while they are looked through: what it costs is the bytes that are asked for.

use std::collections::{BTreeMap, BTreeSet};

use super::request::items::{Made, id_of, is_reference, write_listed, write_message};
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::string;
use crate::json::writer::Writer;
use crate::limits::{MAX_FOUND_ITEMS, MAX_ID};

/// A request and its response, JSON each. What is no JSON has no items.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn<'a> {
    /// The response's id, which items without ids are named after.
    pub id: &'a str,
    /// The request's body.
    pub request: &'a [u8],
    /// The Response object; empty: it is not asked for.
    pub response: &'a [u8],
}

/// What a client asks of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<'a> {
    /// Oldest first.
    pub ascending: bool,
    /// The id of the item that the page follows.
    pub after: Option<&'a str>,
    /// Items.
    pub limit: usize,
}

/// What an item may have more in a list than where it is kept: an id, and what a message of a text has around it.
const LISTED: usize = 256;

/// An item where it is kept.
#[derive(Clone, Copy)]
enum KeptItem<'a> {
    /// A request's input that is a string, JSON: the text of one message.
    InputText(&'a [u8], Made<'a>),
    InputItem(Node<'a>, Made<'a>),
    OutputItem(Node<'a>),
}

impl KeptItem<'_> {
    /// Empty for an item of a response that has none.
    fn id(&self) -> String {
        match *self {
            KeptItem::InputText(_, made) => made.id("message"),
            KeptItem::InputItem(item, made) => id_of(item, made),
            KeptItem::OutputItem(item) => item.get("id").and_then(text).unwrap_or_default(),
        }
    }

    fn listed(&self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(self.size());
        self.list(&mut writer);
        writer.into_bytes()
    }

    fn list(&self, writer: &mut Writer) {
        match *self {
            KeptItem::InputText(text, made) => write_message(text, Some(made), writer),
            KeptItem::InputItem(item, made) => write_listed(item, made, writer),
            KeptItem::OutputItem(item) => writer.raw(item.bytes()),
        }
    }

    /// About as many bytes as it is listed with.
    fn size(&self) -> usize {
        let kept = match *self {
            KeptItem::InputText(text, _) => text.len(),
            KeptItem::InputItem(item, _) | KeptItem::OutputItem(item) => item.bytes().len(),
        };
        kept + LISTED
    }
}

impl<'a> Turn<'a> {
    fn input(&self) -> Option<Node<'a>> {
        Node::document(self.request)?.get("input")
    }

    /// The items of its request, those left out that stand for others, and those of its response.
    fn items(&self) -> impl Iterator<Item = KeptItem<'a>> + use<'a> {
        let token = self.id.strip_prefix("resp_").unwrap_or(self.id);
        let input = self.input();
        let text = input.filter(|input| input.kind() == Kind::String);
        let message = text.map(|text| KeptItem::InputText(text.bytes(), Made { token, index: 0 }));
        let given = input.into_iter().flat_map(|input| input.elements());
        let given = given
            .enumerate()
            .filter(|(_, item)| item.kind() == Kind::Object && !is_reference(*item))
            .map(move |(index, item)| KeptItem::InputItem(item, Made { token, index }));
        message
            .into_iter()
            .chain(given)
            .chain(output(self.response).map(KeptItem::OutputItem))
    }

    /// The ids of its items, for whoever finds items by them: at most [`MAX_FOUND_ITEMS`], none longer than [`MAX_ID`].
    #[must_use]
    pub fn ids(&self) -> Vec<String> {
        self.items()
            .map(|item| item.id())
            .filter(|id| !id.is_empty() && id.len() <= MAX_ID)
            .take(MAX_FOUND_ITEMS)
            .collect()
    }

    /// The items with these ids, each as it is listed; one of its response where that has one. It is looked through
    /// once, however many ids there are.
    #[must_use]
    pub fn find(&self, ids: &[&str]) -> BTreeMap<String, Vec<u8>> {
        let mut missing: BTreeSet<&str> = ids.iter().copied().collect();
        let mut found = BTreeMap::new();
        let nothing = &[][..];
        let answer = Turn {
            request: nothing,
            ..*self
        };
        let question = Turn {
            response: nothing,
            ..*self
        };
        for item in answer.items().chain(question.items()) {
            if missing.is_empty() {
                break;
            }
            let id = item.id();
            if missing.remove(id.as_str()) {
                found.insert(id, item.listed());
            }
        }
        found
    }
}

/// A string that is text: half of a surrogate pair is none, and what stands for it would be another's.
fn text(value: Node<'_>) -> Option<String> {
    let spelled = value.spelled()?;
    string::is_storable(spelled).then(|| string::decode(spelled).into_owned())
}

fn output(response: &[u8]) -> impl Iterator<Item = Node<'_>> {
    let output = Node::document(response).and_then(|it| it.get("output"));
    let items = output.into_iter().flat_map(|output| output.elements());
    items.filter(|item| item.kind() == Kind::Object)
}

/// A page of the items of `turns`, oldest turn first: `OpenAI`'s list object. None where `after` is not one of them.
///
/// ```
/// use sluicegate_core::protocols::responses::conversation::{Page, Turn, page};
///
/// let turn = Turn { id: "resp_7a", request: br#"{"input":[{"id":"x","type":"y"},{"type":"y"}]}"#, response: b"" };
/// let asked = Page { ascending: true, after: Some("x"), limit: 10 };
/// assert_eq!(String::from_utf8(page(&[turn], &asked).unwrap()).unwrap(), concat!(
///     r#"{"object":"list","data":[{"type":"y","id":"item_7ai1"}],"#,
///     r#""first_id":"item_7ai1","last_id":"item_7ai1","has_more":false}"#,
/// ));
/// ```
#[must_use]
pub fn page(turns: &[Turn<'_>], asked: &Page<'_>) -> Option<Vec<u8>> {
    let all = || turns.iter().flat_map(Turn::items);
    let count = all().count();
    let (mut start, mut end) = (0, count);
    if let Some(after) = asked.after {
        let mut places = all()
            .enumerate()
            .filter(|(_, item)| item.id() == after)
            .map(|(place, _)| place);
        match asked.ascending {
            true => start = places.next()? + 1,
            false => end = places.last()?,
        }
    }
    match asked.ascending {
        true => end = end.min(start + asked.limit),
        false => start = start.max(end.saturating_sub(asked.limit)),
    }
    let has_more = match asked.ascending {
        true => end < count,
        false => start > 0,
    };
    let mut shown: Vec<_> = all().skip(start).take(end - start).collect();
    if !asked.ascending {
        shown.reverse();
    }
    let id = |item: Option<&KeptItem<'_>>| {
        let mut id = b"null".to_vec();
        if let Some(item) = item {
            id.clear();
            string::encode(&item.id(), &mut id);
        }
        id
    };
    // An item may be as large as a request: it is copied once.
    let mut writer =
        Writer::with_capacity(shown.iter().map(KeptItem::size).sum::<usize>() + LISTED);
    writer.open(b'{');
    writer.member_spelled("object", b"list");
    writer.key("data");
    writer.open(b'[');
    for item in &shown {
        item.list(&mut writer);
    }
    writer.close(b']');
    writer.member("first_id", &id(shown.first()));
    writer.member("last_id", &id(shown.last()));
    writer.member("has_more", if has_more { b"true" } else { b"false" });
    writer.close(b'}');
    Some(writer.into_bytes())
}

/// All items of `turns` as they are sent to an upstream, with commas between them: requests as the client wrote them,
/// and what answered.
#[must_use]
pub fn repeated(turns: &[Turn<'_>]) -> Vec<u8> {
    let size = turns.iter().map(|it| it.request.len() + it.response.len());
    let mut writer = Writer::with_capacity(size.sum());
    for turn in turns {
        if let Some(input) = turn.input() {
            match input.kind() {
                Kind::String => write_message(input.bytes(), None, &mut writer),
                _ => {
                    for item in input.elements() {
                        writer.raw(item.bytes());
                    }
                }
            }
        }
        for item in output(turn.response) {
            writer.raw(item.bytes());
        }
    }
    writer.into_bytes()
}

/// What a Response object that came whole says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Its id; empty where that is no text.
    pub id: String,
    /// `completed`, `incomplete`, `failed` or `cancelled`.
    pub status: &'static str,
}

impl Whole {
    /// Of `response`, JSON. None for what is no Response object, or has not ended.
    #[must_use]
    pub fn read(response: &[u8]) -> Option<Self> {
        let document = Node::document(response)?;
        let [object, id, status] = document.pick(["object", "id", "status"]);
        id?.spelled().filter(|id| !id.is_empty())?;
        let id = id.and_then(text).unwrap_or_default();
        let status = match status {
            // Null is no absence here: it has not ended then.
            None if document.members().any(|(key, _)| key.is("status")) => return None,
            None => "completed",
            Some(status) => ["completed", "incomplete", "failed", "cancelled"]
                .into_iter()
                .find(|word| status.is(word))?,
        };
        object?.is("response").then_some(Whole { id, status })
    }
}
