"""What a path says that cannot serve a model. Decides nothing; imports nothing."""


class Unsupported(Exception):
    """A path cannot serve this model; the message says what it asks for."""
