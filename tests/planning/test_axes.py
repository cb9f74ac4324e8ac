"""Lists and ranges of an option."""

from __future__ import annotations

import pytest

from kvplan.errors import InputError
from kvplan.planning.axes import parse_axis

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("context", "4096", [4096]),
        ("context", "2k,8k", [2048, 8192]),
        ("context", "2k:16k:x2", [2048, 4096, 8192, 16384]),
        ("context", "2k:15k:x2", [2048, 4096, 8192]),  # the end is not passed
        ("context", "8k:32k:+8k", [8192, 16384, 24576, 32768]),
        ("context", "1:3:+1,10", [1, 2, 3, 10]),
        ("tp", "1:8:x2", [1, 2, 4, 8]),
        ("sessions", "10:30:+10", [10, 20, 30]),
        ("memory_fraction", "0.5:0.9:+0.1", [0.5, 0.6, 0.7, 0.8, 0.9]),  # no 0.7999999
        ("kv_budget", "40GiB:60GiB:+10GiB", [40 * GIB, 50 * GIB, 60 * GIB]),
        ("attention", "mha,gqa:8,mqa", ["mha", "gqa:8", "mqa"]),
        ("gpu", "h100-sxm,h100-sxm:1g.10gb", ["h100-sxm", "h100-sxm:1g.10gb"]),
    ],
)
def test_values(name, text, values):
    assert list(parse_axis(name, text)) == values


def test_a_long_range_is_not_written_out():
    assert len(parse_axis("context", "1:10000000:+1")) == 10_000_000


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("context", "", "there is an empty value"),
        ("context", "4k,,8k", "there is an empty value"),
        ("context", "4k,4096", "'4096' appears twice"),
        ("context", "4k:8k", "a range is START:END:xFACTOR or START:END:"),
        ("context", "8k:4k:x2", "starts above its end"),
        ("context", "4k:8k:x1", "'x1' is no step that reaches the end"),
        ("context", "4k:8k:x0", "'x0' is no step that reaches the end"),
        ("context", "4k:8k:x1.5", "'x1.5' is no step that reaches the end"),
        ("context", r"4k:8k:+0", r"'\+0' is no step that reaches the end"),
        ("context", "4k:8k:-1k", "'-1k' is no step that reaches the end"),
        ("context", "4k:8k:2k", "'2k' is no step that reaches the end"),
        ("context", "1:1M:x99999999999", "is no step that reaches the end"),
        ("context", "1:4294967296:+1", "more than 10,000,000 values"),
        ("memory_fraction", "0.1:0.9:+0", "the step is"),
        ("memory_fraction", "0.1:0.9:+0.0000001", "more than 10,000 values"),
        ("memory_fraction", "0.1:1.5:+0.1", "above 0 and at most 1"),
        ("tp", "01", "expected a whole number of at least 1, got '01'"),
        ("tp", "٣", "expected a whole number"),
    ],
)
def test_what_is_refused(name, text, message):
    with pytest.raises(InputError, match=message):
        parse_axis(name, text)
