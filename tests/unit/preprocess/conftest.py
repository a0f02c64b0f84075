"""A small real tokenizer, made once."""

import pytest

from preprocess.tokenizer import ModelTokenizer
from tests.support.small_tokenizer import write_tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ModelTokenizer:
    """A tokenizer like SmolLM2's."""
    return ModelTokenizer(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="session")
def bare_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ModelTokenizer:
    """The same without a chat template."""
    directory = tmp_path_factory.mktemp("bare-tokenizer")
    return ModelTokenizer(write_tokenizer(directory, chat_template=None))
