"""Files as streams of bytes, unpacked on the way if they are compressed.

Decides when a compressed file is damaged, or made to fill the memory or the day of whoever unpacks
it. Memory is bounded by what is asked for at once and by the compression's window. May import
docmill.errors.
"""

import gzip
import io
import sys
import zlib
from pathlib import Path
from typing import Any

from docmill.errors import InvalidDocument, Reason
from docmill.intake.formats import Format

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

#: Text that people pack shrinks to a tenth or a fiftieth, many copies of one text further.
MAX_RATIO = 500

#: Below this a file may unpack to anything: a few lines repeated are no bomb.
ALWAYS_BYTES = 256 * 1024 * 1024


def open_bytes(path: Path, form: Format | None) -> io.BufferedReader:
    """Open a file for reading what it holds, unpacked.

    Reading raises `InvalidDocument` where the file is damaged, cut off, or a bomb.

    Raises:
        OSError: It cannot be opened.
    """
    file = path.open("rb")
    if form is None or form.compression is None:
        return file
    return io.BufferedReader(_Unpacking(file, form.compression), 64 * 1024)


class _Unpacking(io.RawIOBase):
    """What comes of a compressed file, as long as it stays in proportion."""

    def __init__(self, file: io.BufferedReader, compression: str) -> None:
        self._file = file
        self._compression = compression
        self._unpacked: Any = (
            gzip.GzipFile(fileobj=file) if compression == "gzip" else zstd.ZstdFile(file)
        )
        self._num_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count: int = self._unpacked.readinto(buffer)
        except (EOFError, gzip.BadGzipFile, zlib.error, zstd.ZstdError) as error:
            raise InvalidDocument(
                Reason.UNREADABLE,
                f"its {self._compression} data is damaged or cut off after "
                f"{self._num_bytes} bytes: {error}",
            ) from error
        self._num_bytes += count
        if self._num_bytes > max(ALWAYS_BYTES, MAX_RATIO * self._file.tell()):
            raise InvalidDocument(
                Reason.TOO_LARGE,
                f"it unpacks to more than {MAX_RATIO} times its size; if that is meant, unpack it "
                "first",
            )
        return count

    def close(self) -> None:
        self._unpacked.close()
        self._file.close()
        super().close()
