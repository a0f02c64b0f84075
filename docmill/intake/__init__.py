"""From files and Python values to documents: streamed, checked, one bad piece at a time.

Decides what a document is called and which pieces cannot be used; never sends anything. May import
docmill.errors.
"""

from docmill.intake.base import MAX_DOCUMENT_BYTES, Document, Item, Refusal
from docmill.intake.files import read
from docmill.intake.scan import Duplicate, Scan, scan
from docmill.intake.skipped import Skipped

__all__ = [
    "MAX_DOCUMENT_BYTES",
    "Document",
    "Duplicate",
    "Item",
    "Refusal",
    "Scan",
    "Skipped",
    "read",
    "scan",
]
