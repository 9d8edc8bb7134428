"""The picture of the soak among hostile peers is made from its figures."""

import json
from pathlib import Path
from xml.etree import ElementTree

from soak.picture import svg

ASSETS = Path(__file__).parents[2] / "docs" / "assets"


def test_the_picture_is_that_of_the_figures() -> None:
    figures = json.loads((ASSETS / "hostile-soak.json").read_text())
    command = (
        "PYTHONPATH=tests python -m soak.picture docs/assets/hostile-soak.json docs/assets/hostile-soak.svg"
    )
    assert (ASSETS / "hostile-soak.svg").read_text() == svg(figures), command


def test_a_line_has_a_point_for_each_second() -> None:
    samples = [{"at": n + 1.0, "memory_mib": 50.0 + n, "chunks": 900, "wait_ms": 3.0} for n in range(20)]
    summary = {
        "seconds": 20.0,
        "honest_streams_at_once": 20,
        "hostile_cases_played": 7,
        "samples": samples,
    }
    drawn = ElementTree.fromstring(svg(summary))
    lines = drawn.findall("{http://www.w3.org/2000/svg}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [20, 20, 20]
