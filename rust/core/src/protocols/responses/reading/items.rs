//! The items of one response as far as they are known, and how to find the item that an event belongs to.

use crate::json::node::Node;
use crate::limits::MAX_ITEMS;
use crate::output::Phase;

use super::text_so_far::TextSoFar;

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Message,
    Reasoning,
    /// A call of a function, or of a custom tool.
    Call {
        custom: bool,
    },
    /// What has no pieces.
    Other,
}

impl Class {
    /// Classes that there are.
    pub(super) const COUNT: usize = 5;

    /// Each class's own number, below [`COUNT`](Self::COUNT).
    pub(super) fn number(self) -> usize {
        match self {
            Class::Message => 0,
            Class::Reasoning => 1,
            Class::Call { custom: false } => 2,
            Class::Call { custom: true } => 3,
            Class::Other => 4,
        }
    }

    pub(super) fn of(item: Node<'_>) -> Self {
        match item.filled("type").unwrap_or_default() {
            b"message" => Class::Message,
            b"reasoning" => Class::Reasoning,
            b"function_call" => Class::Call { custom: false },
            b"custom_tool_call" => Class::Call { custom: true },
            _ => Class::Other,
        }
    }
}

/// One of an item's texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::protocols::responses) enum Sort {
    Text,
    Refusal,
    Thinking,
    Summary,
    /// Arguments of a function, input of a custom tool.
    Arguments,
}

impl Sort {
    /// The item that has such a text.
    pub(super) fn class(self, custom: bool) -> Class {
        match self {
            Sort::Text | Sort::Refusal => Class::Message,
            Sort::Thinking | Sort::Summary => Class::Reasoning,
            Sort::Arguments => Class::Call { custom },
        }
    }
}

#[derive(Debug)]
pub(super) struct KnownPart {
    pub(super) sort: Sort,
    pub(super) index: u64,
    pub(super) text: TextSoFar,
    /// Annotations that were given.
    pub(super) annotations: usize,
}

#[derive(Debug)]
pub(super) struct KnownItem {
    pub(super) class: Class,
    /// As it was announced.
    id: Box<[u8]>,
    /// As it was named last: some servers give an item another id in each event.
    latest_id: Box<[u8]>,
    call_id: Box<[u8]>,
    output_index: Option<u64>,
    /// Its `response.output_item.added` event has come.
    announced: bool,
    /// An event has shown it whole.
    pub(super) done: bool,
    /// Of a call: its place among the calls.
    pub(super) call: u64,
    /// Of a call: its id was given, and its name.
    pub(super) identified: bool,
    pub(super) named: bool,
    /// Of reasoning: its encrypted content was given.
    pub(super) sealed: bool,
    /// Of a message.
    pub(super) phase: Option<Phase>,
    pub(super) parts: Vec<KnownPart>,
    /// Parts of its content and of its summary that were announced.
    announced_parts: [u64; 2],
    /// The part that was given last, as a place in `parts`.
    pub(super) open: Option<usize>,
}

impl KnownItem {
    /// The part of this sort and index, as a place in `parts`.
    fn part(&self, sort: Sort, index: u64) -> Option<usize> {
        let is_it = |part: &KnownPart| part.sort == sort && part.index == index;
        self.parts.iter().rposition(is_it)
    }

    /// Counts a part whose beginning an event announced.
    pub(super) fn announce_part(&mut self, sort: Sort) {
        let [content, summary] = &mut self.announced_parts;
        *if sort == Sort::Summary {
            summary
        } else {
            content
        } += 1;
    }

    /// Parts that were announced among those that such a part is counted with.
    pub(super) fn announced_parts(&self, sort: Sort) -> u64 {
        let [content, summary] = self.announced_parts;
        if sort == Sort::Summary {
            summary
        } else {
            content
        }
    }

    /// Whether anything of it was given.
    pub(super) fn is_given(&self) -> bool {
        self.open.is_some() || self.identified || self.named || self.sealed
    }
}

/// How an event names an item.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Name<'a> {
    /// `item_id`, or the item's `id`; empty where there is none.
    pub(super) id: &'a [u8],
    pub(super) call_id: &'a [u8],
    pub(super) output_index: Option<u64>,
}

impl<'a> Name<'a> {
    /// The name of an item that an event holds whole.
    pub(super) fn of(item: Node<'a>, output_index: Option<u64>) -> Self {
        Name {
            id: item.filled("id").unwrap_or_default(),
            call_id: item.filled("call_id").unwrap_or_default(),
            output_index,
        }
    }
}

/// All items, in the order in which events first named them.
#[derive(Debug, Default)]
pub(super) struct Items {
    items: Vec<KnownItem>,
    calls: u64,
    /// Parts of all items.
    parts: usize,
    is_full: bool,
    /// Something is known that was not: how an event names an item may mean another since then.
    changed: bool,
}

impl Items {
    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut KnownItem> {
        self.items.get_mut(place)
    }

    pub(super) fn get(&self, place: usize) -> Option<&KnownItem> {
        self.items.get(place)
    }

    /// Notes that nothing has changed yet.
    pub(super) fn unchanged(&mut self) {
        self.changed = false;
    }

    /// Whether an item, a part or a name is new since then.
    pub(super) fn has_changed(&self) -> bool {
        self.changed
    }

    /// Whether more came than [`MAX_ITEMS`]: then what is new has no place.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether there is room for one more item or part.
    fn make_room(&mut self) -> bool {
        self.is_full |= self.items.len() + self.parts >= MAX_ITEMS;
        !self.is_full
    }

    /// The part of this sort and index of the item at `place`, as a place among its parts; a new one if there is none.
    /// None where there is no such item, or no room.
    pub(super) fn part(&mut self, place: usize, sort: Sort, index: u64) -> Option<usize> {
        if let Some(known) = self.items.get(place)?.part(sort, index) {
            return Some(known);
        }
        if !self.make_room() {
            return None;
        }
        self.changed = true;
        let parts = &mut self.items.get_mut(place)?.parts;
        parts.push(KnownPart {
            sort,
            index,
            text: TextSoFar::default(),
            annotations: 0,
        });
        self.parts += 1;
        Some(parts.len() - 1)
    }

    /// Calls so far.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// The item that an event announces. Another one than those before, unless its id is known.
    pub(super) fn announced(&mut self, name: Name<'_>, class: Class) -> usize {
        let known = self.by_id(name, class);
        let place = known.unwrap_or_else(|| self.push(name, class));
        if let Some(item) = self.items.get_mut(place) {
            item.announced = true;
        }
        place
    }

    /// The item that an event belongs to.
    pub(super) fn told_of(&mut self, name: Name<'_>, class: Class) -> usize {
        let place = self
            .by_id(name, class)
            .or_else(|| self.by_output_index(name, class))
            .or_else(|| self.by_order(name, class))
            .unwrap_or_else(|| self.push(name, class));
        self.note(place, name);
        place
    }

    /// The item that stands at `position` of the final output.
    pub(super) fn at(
        &mut self,
        position: usize,
        name: Name<'_>,
        class: Class,
        before: usize,
    ) -> usize {
        let is_it = |item: &KnownItem| item.class == class;
        let nth = |class: Class| {
            let of_class = self.items.iter().enumerate();
            let mut of_class = of_class.filter(|(_, item)| item.class == class);
            of_class.nth(before).map(|(place, _)| place)
        };
        let known = self
            .by_id(name, class)
            .or_else(|| self.by_output_index(name, class))
            .or_else(|| {
                let item = self.items.get(position).filter(|item| is_it(item));
                item.filter(|item| item.output_index.is_none())
                    .map(|_| position)
            })
            .or_else(|| nth(class));
        known.unwrap_or_else(|| self.push(name, class))
    }

    fn note(&mut self, place: usize, name: Name<'_>) {
        let Some(item) = self.items.get_mut(place) else {
            return;
        };
        if !name.id.is_empty() && *item.latest_id != *name.id {
            item.latest_id = name.id.into();
            self.changed = true;
        }
        if item.output_index.is_none() && name.output_index.is_some() {
            item.output_index = name.output_index;
            self.changed = true;
        }
    }

    fn by_id(&self, name: Name<'_>, class: Class) -> Option<usize> {
        let is_it = |item: &KnownItem| {
            let same = |id: &[u8]| !name.id.is_empty() && id == name.id;
            let same_call = !name.call_id.is_empty() && *item.call_id == *name.call_id;
            item.class == class && (same(&item.id) || same(&item.latest_id) || same_call)
        };
        self.items.iter().rposition(is_it)
    }

    fn by_output_index(&self, name: Name<'_>, class: Class) -> Option<usize> {
        let index = name.output_index?;
        let is_it = |item: &KnownItem| {
            // Of two calls with ids of their own, neither is the other.
            let other = !name.call_id.is_empty()
                && !item.call_id.is_empty()
                && *item.call_id != *name.call_id;
            item.class == class && item.output_index == Some(index) && !other
        };
        self.items.iter().rposition(is_it)
    }

    /// The last item that is open, for events that name none, or name it anew each time.
    fn by_order(&self, name: Name<'_>, class: Class) -> Option<usize> {
        let place = self
            .items
            .iter()
            .rposition(|item| item.class == class && !item.done)?;
        let item = self.items.get(place)?;
        let contradicts = |known: bool, said: bool| known && said;
        let is_other = contradicts(item.output_index.is_some(), name.output_index.is_some())
            || contradicts(!item.call_id.is_empty(), !name.call_id.is_empty())
            || !item.announced && contradicts(!item.id.is_empty(), !name.id.is_empty());
        (!is_other).then_some(place)
    }

    /// The place of a new item; where there is no room, a place that has none.
    fn push(&mut self, name: Name<'_>, class: Class) -> usize {
        if !self.make_room() {
            return usize::MAX;
        }
        self.changed = true;
        let call = self.calls;
        self.calls += u64::from(matches!(class, Class::Call { .. }));
        self.items.push(KnownItem {
            class,
            id: name.id.into(),
            latest_id: name.id.into(),
            call_id: name.call_id.into(),
            output_index: name.output_index,
            announced: false,
            done: false,
            call,
            identified: false,
            named: false,
            sealed: false,
            phase: None,
            parts: Vec::new(),
            announced_parts: [0; 2],
            open: None,
        });
        self.items.len() - 1
    }
}
