//! `HarmonyDecoder`: the text of a gpt-oss model as a streamed chat completion.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sluicegate_core::harmony::{Decoder, Speller};
use sluicegate_core::limits::Limits;
use sluicegate_core::output::{Ending, Head, Piece, Writer};
use sluicegate_core::protocols::chat::writing::{ChatWriter, Written};

use super::{Shared, now, random_id};

struct Machine {
    speller: Speller,
    decoder: Decoder,
    writer: ChatWriter,
    spelled: Vec<u8>,
}

impl Machine {
    fn new(id: &str, model: String, created: u64) -> Self {
        let mut spelled = Vec::new();
        Speller::default().push(id.as_bytes(), &mut spelled);
        let asked = Written {
            streams: true,
            model: Some(model.into()),
            created: Some(created),
            ..Written::default()
        };
        let mut writer = ChatWriter::new(asked, Limits::default());
        let head = Head {
            id: Some(&spelled),
            ..Head::default()
        };
        writer.write(&Piece::Head(head), &mut Vec::new());
        Machine {
            speller: Speller::default(),
            decoder: Decoder::default(),
            writer,
            spelled,
        }
    }

    fn feed(&mut self, data: &[u8]) -> Vec<u8> {
        let (writer, mut out) = (&mut self.writer, Vec::new());
        self.spelled.clear();
        self.speller.push(data, &mut self.spelled);
        self.decoder.feed(&self.spelled, &mut |piece| {
            writer.write(&piece, &mut out);
        });
        out
    }

    fn finish(&mut self) -> Vec<u8> {
        let (writer, mut out) = (&mut self.writer, Vec::new());
        self.spelled.clear();
        self.speller.finish(&mut self.spelled);
        let mut write = |piece: Piece<'_>| writer.write(&piece, &mut out);
        self.decoder.feed(&self.spelled, &mut write);
        self.decoder.finish(&mut write);
        writer.end(Ending::Regular, None, None, &mut out);
        out
    }
}

/// Decodes the text of a gpt-oss model.
#[pyclass(name = "HarmonyDecoder", module = "sluicegate", frozen)]
pub(crate) struct PyHarmonyDecoder(Shared<Machine>);

#[pymethods]
impl PyHarmonyDecoder {
    #[new]
    #[pyo3(signature = (*, id=None, model="", created=None))]
    fn new(
        py: Python<'_>,
        id: Option<String>,
        model: &str,
        created: Option<u64>,
    ) -> PyResult<Self> {
        let id = match id {
            Some(id) => id,
            None => random_id(py, "chatcmpl-")?,
        };
        let created = created.unwrap_or_else(now);
        Ok(PyHarmonyDecoder(Shared::new(Machine::new(
            &id,
            model.to_owned(),
            created,
        ))))
    }

    fn feed<'py>(&self, py: Python<'py>, data: PyBackedBytes) -> Bound<'py, PyBytes> {
        let chunks = self.0.with(py, data.len(), |machine| machine.feed(&data));
        PyBytes::new(py, &chunks)
    }

    fn finish<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.with(py, 0, Machine::finish))
    }
}
