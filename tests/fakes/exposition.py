"""Reading Prometheus's text format."""

from prometheus_client.parser import text_string_to_metric_families


class Samples:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def value(self, name: str, **labels: str) -> float | None:
        """The sum of the samples of `name` that have `labels`; None where there are none."""
        found = [
            sample.value
            for sample in self._samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(found) if found else None
