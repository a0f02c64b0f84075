"""Decoding 1 to 32 rows together, beside what the machine could do at best.

Decides what a step of so many rows is compared with. May import bench.decode_counts and
bench.decode_limits.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from bench.decode_counts import Shape
from bench.decode_limits import Machine


@dataclass(frozen=True, slots=True)
class Line:
    """Steps of so many rows: their speed, their seconds, and the shares of the machine in use.

    `roofline_ratio`: the least time that the machine's limits allow ÷ the median time.
    """

    num_rows: int
    tokens_per_s: float
    median_s: float
    p95_s: float
    bandwidth_share: float
    compute_share: float
    roofline_ratio: float


def line_of(
    num_rows: int, row_len: float, step_times: Sequence[float], shape: Shape, machine: Machine
) -> Line:
    """Return the line of steps of `num_rows` rows that attended `row_len` tokens on average."""
    median_s = statistics.median(step_times)
    flops = shape.decode_flops(num_rows, row_len)
    num_bytes = shape.decode_bytes(num_rows, row_len)
    return Line(
        num_rows=num_rows,
        tokens_per_s=num_rows / median_s,
        median_s=median_s,
        p95_s=percentile(step_times, 0.95),
        bandwidth_share=num_bytes / machine.read_bytes_per_s / median_s,
        compute_share=flops / machine.flops_per_s / median_s,
        roofline_ratio=machine.roofline_s(flops, num_bytes) / median_s,
    )


def middle(rounds: Sequence[Line]) -> Line:
    """Return the medians of the same line, measured several times."""
    each = [[getattr(line, field.name) for line in rounds] for field in fields(Line)[1:]]
    return Line(rounds[0].num_rows, *map(statistics.median, each))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def as_text(lines: Sequence[Line]) -> str:
    """Return the table, as people read it."""
    head = ("rows", "tokens/s", "ms/step", "p95 ms", "bandwidth", "compute", "of roofline")
    rows = [
        (
            f"{line.num_rows}",
            f"{line.tokens_per_s:.0f}",
            f"{line.median_s * 1000:.1f}",
            f"{line.p95_s * 1000:.1f}",
            f"{line.bandwidth_share:.0%}",
            f"{line.compute_share:.0%}",
            f"{line.roofline_ratio:.2f}",
        )
        for line in lines
    ]
    return "\n".join("".join(f"{cell:>12}" for cell in row) for row in [head, *rows])


def as_record(lines: Sequence[Line]) -> Mapping[str, float]:
    """Return the figures of the table by name, for the record."""
    record = {}
    for line in lines:
        prefix = f"decode_{line.num_rows}_rows"
        record[f"{prefix}_tokens_per_s"] = line.tokens_per_s
        record[f"{prefix}_step_ms"] = line.median_s * 1000
        record[f"{prefix}_step_p95_ms"] = line.p95_s * 1000
        record[f"{prefix}_bandwidth_share"] = line.bandwidth_share
        record[f"{prefix}_compute_share"] = line.compute_share
        record[f"decode_roofline_ratio_{line.num_rows}_rows"] = line.roofline_ratio
    return record
