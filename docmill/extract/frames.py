"""Records on a pipe: a length in four bytes, then msgpack.

May import msgpack.
"""

from typing import IO, Any

import msgpack

_LENGTH_BYTES = 4


def send(pipe: IO[bytes], record: dict[str, Any]) -> None:
    """Write a record and flush it.

    Raises:
        OSError: The other end is gone.
    """
    data = msgpack.packb(record)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "big"))
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> dict[str, Any] | None:
    """Read a record; None when the other end is gone, also in the middle of one."""
    size = int.from_bytes(_exactly(pipe, _LENGTH_BYTES) or b"", "big")
    data = _exactly(pipe, size) if size else None
    return msgpack.unpackb(data, max_bin_len=size) if data else None


def _exactly(pipe: IO[bytes], size: int) -> bytes | None:
    data = pipe.read(size)
    return data if len(data) == size else None
