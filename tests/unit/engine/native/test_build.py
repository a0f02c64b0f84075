"""Building the kernels: once, whole or not at all, and never a reason to fail."""

import subprocess
from pathlib import Path

import pytest
import torch

from engine.native import build
from tests.support.wait import wait_until


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Look for kernels in empty folders only, and build of a source that takes no time."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "ops.cpp").write_text("int nothing;")
    monkeypatch.setattr(build, "_SOURCES", sources)
    monkeypatch.setattr(build, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setattr(build, "cached", lambda: tmp_path / "cache")
    return tmp_path


def test_it_is_built_once(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second look finds what the first built, and no scraps lie about."""
    path = build.library()
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kwargs: pytest.fail("built again"))

    assert path == build.library()
    assert [path] == list((empty / "cache").iterdir())


def test_what_is_shipped_comes_first(empty: Path) -> None:
    """An image brings its own."""
    shipped = build.library(into=empty / "shipped")

    assert shipped == build.library()


def test_another_source_is_another_library(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stale is loaded after an upgrade."""
    before = build._name()
    sources = empty / "src"
    sources.mkdir()
    (sources / "ops.cpp").write_text("int changed;")
    monkeypatch.setattr(build, "_SOURCES", sources)

    assert before != build._name()


def test_without_a_compiler_there_is_a_remedy(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason says what to install."""
    monkeypatch.setattr(build, "_COMPILERS", ("no-such-compiler",))

    with pytest.raises(build.Unavailable, match=r"g\+\+"):
        build.library()


def test_a_compiler_that_fails_is_quoted(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is the compiler's, in one line, and nothing half built is left."""
    sources = empty / "src"
    sources.mkdir()
    (sources / "ops.cpp").write_text("this is no C++")
    monkeypatch.setattr(build, "_SOURCES", sources)

    with pytest.raises(build.Unavailable, match="error") as caught:
        build.library()

    assert "\n" not in str(caught.value)
    assert not list((empty / "cache").iterdir())


def test_of_a_full_disk_the_linker_is_quoted() -> None:
    """Not the compiler, which says only that the linker failed."""
    said = (
        "/usr/bin/ld: final link failed: No space left on device\n"
        "collect2: error: ld returned 1 exit status\n"
    )

    assert "No space left" in build._first_error(said)


def test_a_folder_that_cannot_be_written_is_named(empty: Path) -> None:
    """A full or read-only disk costs the kernels, not the service."""
    (empty / "cache").write_text("a file where a folder should be")

    with pytest.raises(build.Unavailable, match="cache"):
        build.library()


def test_a_compiler_that_hangs_is_ended(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With whatever it has started, and nothing waits for that either."""
    compiler, child = empty / "hangs", empty / "child"
    compiler.write_text(f"#!/bin/sh\nsleep 300 &\necho $! > {child}\nwait\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(build, "_COMPILERS", (str(compiler),))
    monkeypatch.setattr(build, "_TIMEOUT_S", 0.5)

    with pytest.raises(build.Unavailable, match="did not end within"):
        build.library()

    state = Path(f"/proc/{child.read_text().strip()}/stat")
    wait_until(lambda: not state.exists() or state.read_text().split()[2] == "Z")
    assert not list((empty / "cache").iterdir())


def test_a_library_cut_short_is_built_anew(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk may have lost the end of it, and to load that would end the process."""
    path = build.library()
    whole = path.read_bytes()
    built: list[Path] = []
    monkeypatch.setattr(build, "_build", built.append)

    for kept in (0, 10, 4096, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        build.library()
    path.write_bytes(whole)

    assert path == build.library()
    assert 5 * [path] == built


def test_a_library_of_something_else_is_named(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason says which file to delete."""
    monkeypatch.setattr(build, "library", lambda: Path("/lib/other.so"))
    monkeypatch.setattr(torch.ops, "load_library", lambda path: None)
    monkeypatch.setattr(torch.ops, "docmill", object())

    assert build.why_unavailable.__wrapped__() == "/lib/other.so has none: delete it"


def test_a_user_without_a_home_may_have_what_is_shipped(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers may run as a user that nobody knows; there, HOME is the remedy."""
    monkeypatch.undo()
    monkeypatch.setattr(build, "SHIPPED", empty / "shipped")

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)

    with pytest.raises(build.Unavailable, match="HOME"):
        build.library()

    shipped = empty / "shipped" / build._name()
    shipped.parent.mkdir()
    monkeypatch.setattr(build, "_is_whole", lambda path: path == shipped)

    assert shipped == build.library()


@pytest.mark.parametrize(
    ("capabilities", "reason"),
    [({}, "AVX512_BF16"), ({"avx512_bf16": True, "amx_bf16": True}, "tiles")],
)
def test_other_processors_have_none(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool], reason: str
) -> None:
    """Processors that cannot run them, and those that have something faster."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)

    with pytest.raises(build.Unavailable, match=reason):
        build.library()
