"""What Redis 7.0 would refuse and later servers, on which the tests run, take."""

import re
from typing import get_args

import pytest

from docmill.scripts import ScriptName, source


@pytest.mark.parametrize("name", get_args(ScriptName))
def test_no_script_negates_a_variable(name: ScriptName) -> None:
    """A negated zero reaches Redis 7.0 as '-0', which it does not take for an integer."""
    code = re.sub(r"--.*", "", source(name))

    assert [] == re.findall(r"[,(=]\s*-[a-z]\w*", code)
