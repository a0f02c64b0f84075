"""Importing the client: light, without the service's packages, and with the names it promises."""

import statistics
import subprocess
import sys
import time

import pytest

import docmill
from docmill import errors

BLOCKED = ("torch", "transformers", "arq", "numpy", "structlog", "pydantic_settings")

#: The goal is 150 ms on a quiet machine (see bench/client.py); this machine may be busy.
MAX_IMPORT_S = 0.5


def run(code: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_every_module_loads_without_the_service_s_packages() -> None:
    """With torch and its like blocked, every public name of the client can be used."""
    run(
        f"import sys\nfor name in {BLOCKED!r}: sys.modules[name] = None\n"
        "import docmill\n[getattr(docmill, name) for name in docmill.__all__]\n"
        "docmill.Client('redis://127.0.0.1:1')._link\n"
    )


def test_naming_the_client_loads_neither_redis_nor_pydantic() -> None:
    """What makes an import slow is loaded when it is used."""
    code = (
        "import sys\nfrom docmill import Client, AsyncClient\nClient()\n"
        "print([name for name in ('redis', 'pydantic', 'rich', 'typer') if name in sys.modules])"
    )

    assert "[]" == run(code).strip()


def test_the_import_is_quick() -> None:
    """It costs little more than starting Python, by the median of several runs in turn."""
    overheads = []
    for _ in range(5):
        started = time.perf_counter()
        run("from docmill import Client")
        between = time.perf_counter()
        run("pass")
        overheads.append(2 * between - started - time.perf_counter())

    assert statistics.median(overheads) < MAX_IMPORT_S


def test_the_exported_names_are_sorted_and_real() -> None:
    """`__all__` is what can be imported, and `dir` shows it."""
    assert sorted(docmill.__all__) == docmill.__all__
    assert dict.fromkeys(docmill.__all__, True) == {
        name: hasattr(docmill, name) for name in docmill.__all__
    }
    assert docmill.__all__ == dir(docmill)
    assert set(docmill._HOMES) | {"__version__"} == set(docmill.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = docmill.no_such_name


def test_every_error_has_a_code_of_its_own() -> None:
    """A code on the wire turns back into one class, and all of them stand in the tree."""
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.DocmillError)
    ]

    assert len({one.code for one in classes}) == len(classes)
    assert {one: one for one in classes} == {one: errors.from_code(one.code) for one in classes}
    assert errors.__doc__ is not None
    assert all(one.__name__ in errors.__doc__ for one in classes)
