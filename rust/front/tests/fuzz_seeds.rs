//! The properties of `rust/fuzz`, on the inputs in its `seeds`: what fuzzing found worth keeping, checked by every
//! compiler.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "what fails here fails the test; the properties are a crate of their own elsewhere"
)]

use std::path::Path;

#[path = "../../fuzz/src/lib.rs"]
mod properties;

type Check = fn(&[u8]);

/// Each target with its property.
const TARGETS: [(&str, Check); 18] = [
    ("any_pieces_are_a_reply", properties::pieces::check),
    ("any_response_has_an_end", properties::response::check),
    ("cost_is_all_that_is_added", properties::cost::check),
    (
        "documents_any_cut_is_identity",
        properties::documents::check,
    ),
    ("encoded_event_is_read_back", properties::encode::check),
    (
        "events_are_those_of_the_standard",
        properties::events::check,
    ),
    ("folding_undoes_unfolding", properties::fold::check),
    ("form_any_cut_says_the_same", properties::form::check),
    ("harmony_any_cut_is_identity", properties::harmony::check),
    ("head_is_read_as_one_thing", properties::head::check),
    (
        "messages_any_cut_is_identity",
        properties::message_replies::check,
    ),
    ("repair_any_cut_is_identity", properties::repair::check),
    ("reply_any_cut_is_identity", properties::reply::check),
    ("request_edit_keeps_other_bytes", properties::request::check),
    ("scan_agrees_with_serde_json", properties::scan::check),
    ("split_any_cut_is_identity", properties::split::check),
    ("translated_request_keeps_text", properties::asked::check),
    (
        "translation_any_cut_is_identity",
        properties::translation::check,
    ),
];

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn every_target_has_its_property_and_its_seeds() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let known = TARGETS.map(|(name, _)| name.to_owned());
    assert_eq!(names(&fuzz.join("seeds")), known);
    let sources = names(&fuzz.join("fuzz_targets"));
    assert_eq!(sources, known.map(|name| format!("{name}.rs")));
}

#[test]
fn every_seed_has_its_property() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    for (name, check) in TARGETS {
        let folder = seeds.join(name);
        let files = names(&folder);
        assert!(!files.is_empty(), "{name}");
        for file in files {
            // A panic here is a property that does not hold; this line says where.
            println!("{name}/{file}");
            check(&std::fs::read(folder.join(file)).unwrap());
        }
    }
}
