"""What users of the `openai` package see of audio, images, moderations and embeddings."""

import hashlib
import io
from pathlib import Path

import pytest

from harness.openai_stand import MODEL, Stand, extra, sdk, stand, valid
from sluicegate.testing import Script, UsageScript
from sluicegate.testing.forms import parts_of

__all__ = ["sdk", "stand"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

USAGE = UsageScript(input_tokens=100)
# 100 at 1 USD a million, and 8 at 4.
COST = 0.000132


async def test_speech_is_streamed_to_a_file(sdk: Stand, tmp_path: Path) -> None:
    sdk.upstream.script = Script(tokens=5)
    path = tmp_path / "said.mp3"
    asking = sdk.client.audio.speech.with_streaming_response.create(model=MODEL, voice="alloy", input="Hi")
    async with asking as response:
        assert response.headers["content-type"] == "audio/mpeg"
        await response.stream_to_file(path)
    assert path.stat().st_size == 5 * 1024
    line = await sdk.line(response.headers["x-request-id"])
    assert (line["endpoint"], line["result"], line["bytes_out"]) == ("speech", "ok", 5 * 1024)


async def test_speech_is_read_whole(sdk: Stand) -> None:
    sdk.upstream.script = Script(tokens=3)
    said = await sdk.client.audio.speech.create(model=MODEL, voice="alloy", input="Hi", response_format="wav")
    assert len(said.content) == 3 * 1024


@pytest.mark.parametrize("size", [1000, 3_000_000])
async def test_a_file_is_transcribed(sdk: Stand, size: int) -> None:
    sdk.upstream.script = Script(usage=USAGE)
    audio = bytes(range(256)) * (size // 256)
    made = await sdk.client.audio.transcriptions.create(model=MODEL, file=("a.wav", io.BytesIO(audio)))
    assert valid(made).text.startswith("A sluice")
    assert extra(made.usage)["cost"] == COST
    got = parts_of(sdk.upstream.requests[-1].request)
    assert got is not None
    assert {part.name: part.value for part in got} == {
        "model": MODEL,
        "file": {"filename": "a.wav", "size": len(audio), "sha256": hashlib.sha256(audio).hexdigest()},
    }


async def test_subtitles_are_text(sdk: Stand) -> None:
    sdk.upstream.script = Script(text="one two")
    made = await sdk.client.audio.transcriptions.create(
        model=MODEL, file=("a.wav", b"abc"), response_format="srt"
    )
    assert made.startswith("1\n00:00:01,000 --> ")


async def test_a_transcription_is_streamed(sdk: Stand) -> None:
    sdk.upstream.script = Script(usage=USAGE)
    stream = await sdk.client.audio.transcriptions.create(model=MODEL, file=("a.wav", b"abc"), stream=True)
    events = [event async for event in stream]
    text = "".join(event.delta for event in events if event.type == "transcript.text.delta")
    last = events[-1]
    assert last.type == "transcript.text.done"
    assert last.text == text
    assert extra(last.usage)["cost"] == COST


async def test_a_translation_is_made(sdk: Stand) -> None:
    sdk.upstream.script = Script()
    with pytest.warns(DeprecationWarning, match="deprecated"):
        made = await sdk.client.audio.translations.create(model=MODEL, file=("a.wav", b"abc"))
    assert made.text.startswith("A sluice")


async def test_images_are_made_and_edited(sdk: Stand) -> None:
    sdk.upstream.script = Script(usage=USAGE)
    made = await sdk.client.images.generate(model=MODEL, prompt="a boat", n=2)
    assert len(made.data or ()) == 2
    assert extra(made.usage)["cost"] == COST
    pictures = [("a.png", b"abc"), ("b.png", b"def")]
    edited = await sdk.client.images.edit(model=MODEL, prompt="a boat", image=pictures)
    assert extra(edited.usage)["cost"] == COST
    got = parts_of(sdk.upstream.requests[-1].request)
    assert got is not None
    assert [part.content for part in got if part.name == "image[]"] == [b"abc", b"def"]
    with pytest.warns(DeprecationWarning, match="deprecated"):
        varied = await sdk.client.images.create_variation(model=MODEL, image=("a.png", b"abc"))
    assert varied.data


async def test_an_image_is_streamed(sdk: Stand) -> None:
    sdk.upstream.script = Script(usage=USAGE)
    stream = await sdk.client.images.generate(model=MODEL, prompt="a boat", stream=True, partial_images=1)
    events = [event async for event in stream]
    first, last = events
    assert first.type == "image_generation.partial_image"
    assert last.type == "image_generation.completed"
    assert extra(last.usage)["cost"] == COST


async def test_texts_are_moderated(sdk: Stand) -> None:
    sdk.upstream.script = Script()
    made = await sdk.client.moderations.create(model=MODEL, input=["a", "b"])
    assert [result.flagged for result in made.results] == [False, False]


async def test_texts_are_embedded(sdk: Stand) -> None:
    sdk.upstream.script = Script(usage=USAGE)
    made = valid(await sdk.client.embeddings.create(model=MODEL, input=["a", "b"]))
    assert len(made.data) == 2
    assert extra(made.usage)["cost"] == 0.0001
