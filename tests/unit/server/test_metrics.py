"""Metrics as Prometheus reads them."""

import pytest

from stepwell.errors import ConfigurationError
from stepwell.server.metrics import Counter, Gauge, Histogram, Metrics


def lines_of(family: Counter | Histogram) -> list[str]:
    return list(family.lines())


def test_a_counter_has_a_head_and_one_line_per_series() -> None:
    counter = Counter("sends_total", "Sends.", ("result",))
    counter.add(result="new")
    counter.add(2, result="new")
    counter.add(result="again")

    assert lines_of(counter) == [
        "# HELP sends_total Sends.",
        "# TYPE sends_total counter",
        'sends_total{result="again"} 1',
        'sends_total{result="new"} 3',
    ]
    assert counter.value(result="new") == 3
    assert counter.value(result="never") == 0


def test_a_counter_without_labels_begins_with_zero() -> None:
    assert lines_of(Counter("errors_total", "Errors."))[-1] == "errors_total 0"


def test_a_gauge_goes_up_and_down() -> None:
    gauge = Gauge("open", "Open.", ("kind",))
    gauge.add(1, kind="sse")
    gauge.add(1, kind="sse")
    gauge.add(-1, kind="sse")
    gauge.set(7.5, kind="socket")

    assert lines_of(gauge)[1:] == [
        "# TYPE open gauge",
        'open{kind="socket"} 7.5',
        'open{kind="sse"} 1',
    ]


def test_a_histogram_counts_upwards_to_infinity() -> None:
    histogram = Histogram("seconds", "Time.", (), bounds=(0.1, 1.0))
    for value in (0.1, 0.5, 3.0):
        histogram.observe(value)

    assert lines_of(histogram)[2:] == [
        'seconds_bucket{le="0.1"} 1',
        'seconds_bucket{le="1"} 2',
        'seconds_bucket{le="+Inf"} 3',
        "seconds_sum 3.6",
        "seconds_count 3",
    ]


def test_labels_are_escaped() -> None:
    counter = Counter("c", "Two\nlines \\ and more.", ("route",))
    counter.add(route='a"b\\c\nd')

    assert lines_of(counter) == [
        r"# HELP c Two\nlines \\ and more.",
        "# TYPE c counter",
        r'c{route="a\"b\\c\nd"} 1',
    ]


def test_a_forgotten_label_is_a_defect() -> None:
    with pytest.raises(ConfigurationError, match="has the labels"):
        Counter("c", "C.", ("route",)).add()


def test_all_metrics_make_one_text_with_each_name_once() -> None:
    metrics = Metrics()
    metrics.requests.add(method="GET", route="/health", status="200")

    text = metrics.text()

    heads = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert heads == sorted(set(heads))
    assert 'stepwell_http_requests_total{method="GET",route="/health",status="200"} 1' in text
    assert text.endswith("\n")
