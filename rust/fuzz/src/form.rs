//! However a form is cut, the same is known of it; and a model that is replaced in its place is the model.

use bytes::Bytes;
use sluicegate_core::form::{Form, FormFault, FormScanner};

use super::Cut;

fn scan(reads: &[Bytes]) -> Result<Form, FormFault> {
    let mut scanner = FormScanner::new(b"multipart/form-data; boundary=b")?;
    for read in reads {
        scanner.feed(read)?;
    }
    scanner.finish().cloned()
}

/// Checks the property on one input.
pub fn check(input: &[u8]) {
    let Some(cut) = super::read::<Cut<'_>>(input) else {
        return;
    };
    let whole = scan(&cut.whole());
    assert_eq!(scan(&cut.bytewise()), whole);
    assert_eq!(scan(&cut.reads()), whole);
    let Ok(form) = whole else {
        return;
    };
    let Some(model) = &form.model else {
        return;
    };
    let (start, end) = (form.model_at.start, form.model_at.end);
    assert_eq!(&cut.body()[start..end], model.as_bytes());
    let replaced = [&cut.body()[..start], b"another", &cut.body()[end..]].concat();
    let renamed = Form {
        model: Some("another".into()),
        model_at: start..start + "another".len(),
        ..form
    };
    assert_eq!(scan(&[replaced.into()]), Ok(renamed));
}
