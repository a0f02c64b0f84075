"""How bench/engine.py takes turns, compares its sides and names what is missing."""

import sys
from pathlib import Path

import pytest

from bench import engine
from bench.engine import ratios, speed_figures, take_turns
from bench.engine_sides import Process, Side, Turn, all_sides, chosen
from bench.report import ROOT


def side(name: str, *, once: bool = False) -> Side:
    """A side whose kind is the beginning of its name."""
    return Side(name, name.split("_")[0], Path(sys.executable), once=once)


class Recorded(Process):
    """A side that notes its turns and answers two documents a second."""

    def __init__(self, its: Side, turns: list[tuple[str, str]]) -> None:
        self.side = its
        self._turns = turns

    def run(self, workload: str) -> Turn:
        """Note the turn."""
        self._turns.append((workload, self.side.name))
        return Turn(0.5, {"r0": [1]})


def test_sides_take_turns_and_slow_ones_run_once() -> None:
    """A B C, A B C: what slows the machine for a while slows every side; slow sides run first."""
    order: list[tuple[str, str]] = []
    sides = [side("docmill"), side("vllm_eager"), side("generate_batch", once=True)]

    turns = take_turns([Recorded(each, order) for each in sides], ["off", "full"], runs=2)

    quick = (
        [("off", "docmill"), ("off", "vllm_eager")],
        [("full", "docmill"), ("full", "vllm_eager")],
    )
    assert [*quick[0], ("off", "generate_batch"), *quick[1], *quick[0], *quick[1]] == order
    assert {"off": [2, 2, 1], "full": [2, 2]} == {
        workload: [len(each) for each in by_side.values()] for workload, by_side in turns.items()
    }


def test_a_ratio_is_taken_against_each_round_s_best() -> None:
    """A peer's better mode counts, round by round; one that ran once counts with that run."""
    assert [2.0, 3.0, 1.5] == ratios([1.0, 1.0, 2.0], [[2.0, 4.0, 3.0], [9.0, 3.0, 9.0]])
    assert [3.0, 1.5] == ratios([1.0, 2.0], [[3.0]])


def test_figures_compare_with_the_peers_that_ran() -> None:
    """Every side has its speed; what no peer ran for has no ratio."""
    sides = [side("docmill"), side("vllm_eager"), side("vllm_compiled"), side("openvino")]
    answers = {"r0": [1], "r1": [2]}
    turns = {
        "off": {
            "docmill": [Turn(1.0, answers)],
            "vllm_eager": [Turn(3.0, answers)],
            "vllm_compiled": [Turn(2.0, answers)],
            "openvino": [Turn(1.5, answers)],
        }
    }

    figures = speed_figures(turns, sides)

    assert 2.0 == figures["docmill_off_docs_per_s"]["median"]
    assert 2.0 == figures["docs_per_s_ratio_vs_vllm"]["median"]
    assert 1.5 == figures["docs_per_s_ratio_vs_best_peer_off"]["median"]
    assert "docs_per_s_ratio_vs_best_peer_full" not in figures
    assert "docs_per_s_ratio_vs_best_generate" not in figures


def test_every_engine_is_measured_unless_kinds_are_named() -> None:
    """The engine itself always takes part; an unknown peer is refused by name."""
    assert all_sides() == chosen(None)
    assert ["docmill", "vllm_eager", "vllm_compiled"] == [each.name for each in chosen(["vllm"])]
    with pytest.raises(SystemExit, match="no such peer: sglang"):
        chosen(["sglang"])


def test_a_peer_that_is_not_installed_says_what_installs_it() -> None:
    """It is named with the missing path."""
    absent = Side("vllm_eager", "vllm", ROOT / "not-there" / "python")

    assert absent.missing() == "vllm_eager: not installed (not-there/python); run: make bench-peers"
    assert side("docmill").missing() is None


def test_no_token_ends_the_measured_model_s_text(tmp_path: Path) -> None:
    """The copy has the same files, a configuration without end of text and none for generation."""
    model, copy = tmp_path / "model", tmp_path / "copy"
    model.mkdir()
    copy.mkdir()
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (model / name).write_text('{"eos_token_id": 2, "hidden_size": 8}')

    engine.without_end_of_text(model, copy)

    assert {"config.json", "model.safetensors"} == {file.name for file in copy.iterdir()}
    assert (copy / "config.json").read_text() == '{"eos_token_id": null, "hidden_size": 8}'


def test_a_model_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is measured, with the command that makes one."""
    monkeypatch.setattr(sys, "argv", ["bench.engine", "--model", str(tmp_path / "nowhere")])

    with pytest.raises(SystemExit):
        engine.main()

    assert "nowhere is no model directory; `make model`" in capsys.readouterr().err
