"""A plot of decoding by number of rows, as an SVG file written by hand.

Decides how it looks: throughput as bars, and above them, as two lines, the shares of the read
bandwidth and of the matrix-product limit in use. May import bench.decode_table.
"""

from collections.abc import Sequence
from pathlib import Path

from bench.decode_table import Line

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 70, 60, 60
_BAR, _READ, _COMPUTE, _INK = "#c9d6e8", "#b3541e", "#2b6a4d", "#333333"


def svg(lines: Sequence[Line], title: str) -> str:
    """Return the plot of a table's lines."""
    most = _rounded_up(max(line.tokens_per_s for line in lines))
    step = (_WIDTH - _LEFT - _RIGHT) / len(lines)
    middles = [_LEFT + step * (index + 0.5) for index in range(len(lines))]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="13" fill="{_INK}">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_WIDTH / 2, 22, title, size=15),
        *_legend(),
        *_axes(most),
    ]
    for middle, line in zip(middles, lines, strict=True):
        top = _y(line.tokens_per_s / most)
        parts += [
            f'<rect x="{middle - step * 0.3:.1f}" y="{top:.1f}" width="{step * 0.6:.1f}" '
            f'height="{_y(0) - top:.1f}" fill="{_BAR}"/>',
            _text(middle, top - 5, f"{line.tokens_per_s:.0f}"),
            _text(middle, _y(0) + 20, str(line.num_rows)),
        ]
    parts += _curve(middles, [line.bandwidth_share for line in lines], _READ)
    parts += _curve(middles, [line.compute_share for line in lines], _COMPUTE)
    parts.append(_text(_WIDTH / 2, _HEIGHT - 14, "rows decoded together"))
    return "\n".join([*parts, "</svg>", ""])


def write(path: Path, lines: Sequence[Line], title: str) -> None:
    """Write the plot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(svg(lines, title), encoding="utf-8")


def _y(share: float) -> float:
    """Return where a share of the height is drawn; above 1 it stays at the top."""
    return _TOP + (1 - min(share, 1.0)) * (_HEIGHT - _TOP - _BOTTOM)


def _rounded_up(value: float) -> int:
    """Return the next number of tokens/s that five grid lines divide."""
    unit = int(5 * 10 ** max(0, len(str(int(value))) - 2))
    return (int(value) // unit + 1) * unit


def _text(x: float, y: float, text: str, *, size: int = 13, color: str = _INK) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-size="{size}" fill="{color}"'
    return f"<text {place}>{text}</text>"


def _legend() -> list[str]:
    names = (
        (_WIDTH * 0.2, "tokens/s (bars)", _INK),
        (_WIDTH * 0.48, "share of read bandwidth", _READ),
        (_WIDTH * 0.79, "share of matrix-product limit", _COMPUTE),
    )
    return [_text(x, 44, name, color=color) for x, name, color in names]


def _axes(most: int) -> list[str]:
    parts = []
    for fifth in range(6):
        share = fifth / 5
        y = _y(share)
        parts += [
            f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#dddddd"/>',
            _text(_LEFT - 28, y + 4, f"{most * share:.0f}"),
            _text(_WIDTH - _RIGHT + 28, y + 4, f"{share:.0%}"),
        ]
    return parts


def _curve(xs: Sequence[float], shares: Sequence[float], color: str) -> list[str]:
    points = [(x, _y(share)) for x, share in zip(xs, shares, strict=True)]
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>' for x, y in points]
    return [f'<polyline points="{joined}" fill="none" stroke="{color}" stroke-width="2"/>', *dots]
