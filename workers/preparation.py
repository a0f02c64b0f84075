"""What prepares documents for the model that is configured, in whichever process.

Decides which tokenizer belongs to a model and what a service serves. May import preprocess and the
shared modules in workers, but never torch.
"""

import time

from preprocess.base import Tokenizer
from preprocess.fake_tokenizer import FakeTokenizer
from preprocess.pipeline import Preprocessor
from preprocess.plans import Served
from preprocess.tokenizer import ModelTokenizer
from workers.models import ModelFiles
from workers.settings import Settings


def load_tokenizer(files: ModelFiles) -> Tokenizer:
    """Return the model's tokenizer.

    Raises:
        ConfigError: Its files cannot be used.
    """
    return FakeTokenizer() if files.path is None else ModelTokenizer(files.path)


def preprocessor_for(settings: Settings, files: ModelFiles) -> Preprocessor:
    """Return what prepares documents for the model, within the settings.

    Raises:
        ConfigError: The model's files cannot be used.
    """
    served = Served(
        files.name,
        files.version,
        files.context_len,
        settings.max_document_bytes,
        settings.rules,
    )
    return Preprocessor(load_tokenizer(files), served, clock=time.monotonic)
