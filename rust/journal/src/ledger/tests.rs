use super::*;

fn row(change: impl FnOnce(&mut LedgerRow)) -> LedgerRow {
    let closing = Closing {
        status: Some(200),
        ..Closing::default()
    };
    let used = (Counts::default(), Source::None);
    let mut row = LedgerRow::new(
        1,
        Opening::default(),
        closing,
        used,
        Texts::default(),
        vec![],
    );
    change(&mut row);
    row
}

fn failed(fault: &str, status: u64) -> LedgerRow {
    row(|row| {
        row.closing.status = Some(status);
        row.texts.set(FAULT, Some(fault));
    })
}

#[test]
fn results() {
    let with_status = |status| row(|row| row.closing.status = status);
    let left = |background| {
        row(|row| {
            row.closing.client_left = Some(1);
            row.opening.background = background;
        })
    };
    let cases = [
        (row(|_| ()), "ok"),
        (with_status(None), "ok"),
        (with_status(Some(404)), "refused"),
        (with_status(Some(503)), "failed"),
        (row(|row| row.interrupted = true), "interrupted"),
        (left(Some(0)), "client_left"),
        (left(Some(1)), "cancelled"),
        (
            row(|row| row.texts.set(FINISH_REASON, Some("abort"))),
            "failed",
        ),
        (failed("status", 400), "refused"),
        (failed("status", 408), "failed"),
        (failed("status", 429), "failed"),
        (failed("status", 502), "failed"),
        (failed("untranslatable", 400), "refused"),
        (failed("truncated", 200), "failed"),
        (failed("truncated", 400), "failed"),
    ];
    for (row, result) in cases {
        assert_eq!(row.result(), result, "{row:?}");
    }
}

#[test]
fn what_the_upstream_says_in_the_end_takes_the_place_of_what_was_asked() {
    let texts = |names: &[&str]| names.iter().map(Some).collect();
    let row = Row {
        id: 1,
        opening: Opening::default(),
        texts: texts(&OPENING_TEXTS),
        ending: Ending::Closed {
            numbers: Closing::default(),
            usage: Counts::default(),
            texts: texts(&[
                "a", "b", "price_id", "id", "cost", "reason", "fault", "code",
            ]),
            attempts: Vec::new(),
        },
    };
    let row = LedgerRow::from(row);
    let said = TEXTS.into_iter().zip(row.texts.iter());
    let said: Vec<_> = said.filter(|(name, text)| *text != Some(name)).collect();
    let expected = [
        ("upstream", Some("a")),
        ("upstream_model", Some("b")),
        ("upstream_request_id", Some("id")),
        ("upstream_cost", Some("cost")),
        ("finish_reason", Some("reason")),
    ];
    assert_eq!(said, expected);
}

fn interrupted(seen: Seen) -> LedgerRow {
    interrupted_with(seen, None)
}

fn interrupted_with(seen: Seen, estimated_input: Option<u64>) -> LedgerRow {
    LedgerRow::from(Row {
        id: 1,
        opening: Opening {
            streamed: Some(1),
            estimated_input,
            ..Opening::default()
        },
        texts: [None::<&str>; OPENING_TEXTS.len()].into_iter().collect(),
        ending: Ending::Interrupted(seen),
    })
}

#[test]
fn usage_of_what_nobody_saw_the_end_of() {
    let nothing = interrupted(Seen::default());
    assert_eq!(
        (nothing.usage, nothing.source),
        (Counts::default(), Source::None)
    );
    assert_eq!(nothing.closing.streamed, Some(0));
    let usage = Counts {
        output: Some(3),
        reasoning: Some(9),
        ..Counts::default()
    };
    let seen = Seen {
        token_events: 5,
        bytes_in: 1,
        usage: Some(usage),
        whole: true,
        moved: Some(("b".into(), "n".into())),
        ..Seen::default()
    };
    let whole = interrupted(seen.clone());
    assert_eq!((whole.usage, whole.source), (usage, Source::Upstream));
    assert_eq!(whole.closing.streamed, Some(1));
    assert_eq!(whole.text(UPSTREAM), Some("b"));
    assert_eq!(whole.models().1, Some("n"));
    let counted = interrupted(Seen {
        whole: false,
        ..seen
    });
    let expected = Counts {
        input: Some(0),
        output: Some(5),
        reasoning: Some(5),
        ..usage
    };
    assert_eq!(
        (counted.usage, counted.source),
        (expected, Source::Estimated)
    );
}

#[test]
fn an_input_that_nobody_told_is_its_estimate_once_the_upstream_had_the_request() {
    let charged = |usage: Option<Counts>, token_events, whole| {
        let seen = Seen {
            attempts: 1,
            usage,
            token_events,
            whole,
            ..Seen::default()
        };
        let row = interrupted_with(seen, Some(500));
        (row.usage.input, row.usage.output, row.source)
    };
    let told = |input| {
        Some(Counts {
            input: Some(input),
            output: Some(2),
            ..Counts::default()
        })
    };
    let accepted = Some(Counts::default());
    let estimated = Source::Estimated;
    assert_eq!(charged(None, 0, false), (None, None, Source::None));
    assert_eq!(charged(accepted, 0, false), (Some(500), Some(0), estimated));
    assert_eq!(charged(accepted, 7, false), (Some(500), Some(7), estimated));
    // A preview may say 0 until the input is counted.
    assert_eq!(charged(told(0), 7, false), (Some(500), Some(7), estimated));
    assert_eq!(charged(told(90), 7, false), (Some(90), Some(7), estimated));
    let said = (Some(90), Some(2), Source::Upstream);
    assert_eq!(charged(told(90), 7, true), said);
}

#[test]
fn each_column_is_there_once() {
    let mut names: Vec<_> = columns().iter().map(|column| column.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(TEXTS.iter().all(|name| names.contains(name)));
}

#[test]
fn numbers_stay_within_what_a_database_takes() {
    let row = row(|row| row.closing.duration = Some(u64::MAX - 1));
    let columns = columns();
    let found = columns.iter().find(|column| column.name == "duration");
    let value = found.map(|column| Values::of(&row).get(*column));
    assert_eq!(value, Some(Value::Number(i64::MAX)));
}
