"""What bench/decode.py counts, and how its table and plot show it."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from transformers import AutoModelForCausalLM

from bench import decode_passes
from bench.decode import decode_figures, padding_ratio
from bench.decode_counts import Shape
from bench.decode_limits import Machine, best
from bench.decode_passes import Pass, Seen
from bench.decode_plot import svg, write
from bench.decode_table import Line, as_record, as_text, line_of, middle, percentile
from engine.base import Row, Sampling
from engine.options import Limits
from engine.torch_engine import TorchEngine
from tests.support.tiny_model import tiny_llama

SVG = "{http://www.w3.org/2000/svg}"
LINES = [Line(1, 40.0, 0.025, 0.03, 0.5, 0.1, 0.5), Line(8, 200.0, 0.04, 0.05, 0.4, 0.6, 0.6)]


@pytest.fixture(scope="module")
def engine() -> TorchEngine:
    """A tiny engine that guesses nothing."""
    limits = Limits(max_rows=4, chunk_tokens=64, max_drafts=0)
    return TorchEngine.load(tiny_llama(), dtype="float32", limits=limits)


def test_weights_are_counted_as_the_model_has_them() -> None:
    """The counts are those of the model's parameters, kind by kind."""
    shape = Shape.read(tiny_llama())
    sizes = {
        name: parameter.numel()
        for name, parameter in AutoModelForCausalLM.from_pretrained(tiny_llama()).named_parameters()
    }

    assert shape.body_weights == sum(sizes[name] for name in sizes if "proj" in name)
    assert shape.norm_weights == sum(sizes[name] for name in sizes if "norm" in name)
    assert shape.head_weights == sizes["model.embed_tokens.weight"]


def test_attention_is_counted_causally() -> None:
    """Each token attends itself and what is before it; scores and sums, two operations each."""
    shape = Shape(2, 4, 8, 2, 1, 2, vocab_size=10)
    qkv, rest = 8 * 4, 4 * 4 + 16 * 4 + 4 * 8
    body, keys_and_values = 2 * (qkv + rest), 4 * 4
    last = body // 2 - keys_and_values  # of the last layer, what only the last token needs

    pairs = (1 + 2 + 3) + 3
    assert shape.prefill_flops(3) == 2 * (3 * body - 2 * last + 40) + 4 * 2 * 2 * pairs
    assert shape.decode_flops(5, 7.0) == 5 * (2 * (body + 40) + 2 * 4 * 2 * 2 * 7)


def test_a_step_reads_each_weight_once_and_all_keys_and_values() -> None:
    """More rows add keys and values alone."""
    shape = Shape(1, 4, 8, 2, 1, 2, vocab_size=10)
    weights = 8 * 4 + 4 * 4 + 16 * 4 + 4 * 8 + 40 + 12

    assert shape.decode_bytes(5, 7.0) == 2 * (weights + 5 * 7 * 2 * 2)


def test_a_roofline_is_the_limit_that_binds() -> None:
    """The best of two measurements of a machine counts, limit by limit."""
    machine = best(Machine(100.0, 10.0), Machine(50.0, 20.0))

    assert Machine(100.0, 20.0) == machine
    assert machine.roofline_s(flops=300.0, num_bytes=20.0) == 3.0
    assert machine.roofline_s(flops=100.0, num_bytes=40.0) == 2.0


def test_a_line_compares_the_median_step_with_the_machine() -> None:
    """One slow step moves the 95th percentile and nothing else."""
    shape = Shape(1, 4, 8, 2, 1, 2, vocab_size=10)
    machine = Machine(shape.decode_flops(2, 3.0) / 2, shape.decode_bytes(2, 3.0))

    line = line_of(2, 3.0, [4.0, 4.0, 9.0], shape, machine)

    assert Line(2, 0.5, 4.0, 9.0, 0.25, 0.5, 0.5) == line
    assert percentile([float(each) for each in range(100)], 0.95) == 95.0


def test_a_table_has_a_line_for_each_number_of_rows() -> None:
    """People read it; the record has the same figures by name."""
    text = as_text(LINES).splitlines()

    assert ["rows", "tokens/s", "ms/step", "p95", "ms"] == text[0].split()[:5]
    assert ["8", "200", "40.0", "50.0", "40%", "60%", "0.60"] == text[2].split()
    assert as_record(LINES)["decode_8_rows_step_ms"] == 40.0
    assert as_record(LINES)["decode_roofline_ratio_8_rows"] == 0.6


def test_of_several_rounds_medians_are_shown() -> None:
    """Field by field, whichever round they come from."""
    rounds = [Line(8, speed, 1 / speed, 0.1, 0.2, 0.3, 0.4) for speed in (4.0, 1.0, 2.0)]

    assert Line(8, 2.0, 0.5, 0.1, 0.2, 0.3, 0.4) == middle(rounds)


def test_the_round_counts_where_fewer_rows_or_more_do_worse() -> None:
    """Both numbers of rows are to reach the target, each time."""
    other = [
        replace(line, roofline_ratio=0.9) for line in [*LINES[1:], replace(LINES[1], num_rows=32)]
    ]
    least = [LINES[1], replace(LINES[1], num_rows=32, roofline_ratio=0.3)]

    figures = decode_figures([other, least])

    assert 0.3 == figures["decode_roofline_ratio"]["min"]
    assert 0.9 == figures["decode_roofline_ratio"]["max"]
    assert "tokens/s" == figures["decode_8_rows_tokens_per_s"]["unit"]
    assert "ms" == figures["decode_8_rows_step_p95_ms"]["unit"]
    assert "share" == figures["decode_8_rows_bandwidth_share"]["unit"]


def test_the_plot_is_an_svg_with_every_figure_in_it(tmp_path: Path) -> None:
    """Bars are as high as their throughput; both curves have a dot for each number of rows."""
    write(tmp_path / "images" / "decode.svg", LINES, "Decoding")
    drawing = ElementTree.fromstring((tmp_path / "images" / "decode.svg").read_text())

    texts = [each.text for each in drawing.iter(f"{SVG}text")]
    bars = [float(each.attrib["height"]) for each in drawing.iter(f"{SVG}rect")][1:]
    assert {"Decoding", "40", "200", "1", "8", "100%", "250"} <= set(texts)
    assert bars[1] == pytest.approx(5 * bars[0], abs=0.1)
    assert len(list(drawing.iter(f"{SVG}circle"))) == 4


def test_a_share_above_one_stays_in_the_plot() -> None:
    """A machine may do better than a limit measured on it."""
    high = Line(1, 40.0, 0.025, 0.03, 1.2, 0.1, 1.2)

    drawing = ElementTree.fromstring(svg([high], "Decoding"))

    assert all(float(dot.attrib["cy"]) >= 60 for dot in drawing.iter(f"{SVG}circle"))


def test_a_step_lasts_until_the_next_of_its_kind_begins() -> None:
    """What is spent between passes counts; passes of other sizes do not."""
    moments = [(0.0, 0.5, 9), (1.0, 1.5, 2), (2.0, 2.5, 2), (4.0, 4.5, 2), (5.0, 5.5, 1)]
    seen = Seen(passes=[Pass(*each) for each in moments], token_times={"a": [0.5, 1.5, 3.0]})

    assert [1.0, 2.0] == seen.step_times(2)
    assert [1.0, 1.5] == seen.gaps()
    assert 2.5 == seen.forward_s


def test_an_engine_is_seen_pass_by_pass(engine: TorchEngine) -> None:
    """All rows' tokens are seen, those that joined later included, and nothing stays wrapped."""
    rows = decode_passes.random_rows([20, 30, 9, 40, 12, 7], 5, 300)

    ran = decode_passes.run(engine, rows[:3], joining=rows[3:])
    again = decode_passes.run(engine, rows)

    assert {row.row_id for row in rows} == {each.row_id for each in ran.done}
    assert 4 * 6 == ran.num_decoded
    assert all(len(times) == 5 for times in ran.seen.token_times.values())
    assert 0 < ran.seen.forward_s < ran.seconds
    assert len(ran.seen.passes) > 0
    assert again.seen.num_ids == ran.seen.num_ids


def test_prompts_are_computed_without_padding(engine: TorchEngine) -> None:
    """Prompts of any lengths, cut into passes, cost their own tokens, whatever they share."""
    shared = np.arange(10, 90, dtype=np.uint32)
    rows = [Row("a", shared, Sampling(3)), Row("b", np.append(shared, [5, 6, 7]), Sampling(2))]

    assert 0.0 == padding_ratio(engine, [*rows, *decode_passes.random_rows([3, 70], 4, 300)])
