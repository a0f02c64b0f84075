"""Files as people have them, submitted to a real Redis: their answers know where they came from."""

import gzip
from pathlib import Path

from docmill import Client, read
from tests.support.canned_worker import CannedWorker
from tests.support.documents import docx, paragraph, pdf


def test_answers_know_their_file_page_and_row(
    client: Client, worker: CannedWorker, tmp_path: Path
) -> None:
    """What intake noted of a document comes back with its result, unchanged."""
    (tmp_path / "a.pdf").write_bytes(pdf(["in a pdf", "of two pages"], title="T"))
    (tmp_path / "b.docx").write_bytes(docx(paragraph("in word")))
    (tmp_path / "c.csv").write_text('id,body\nrow,"in\na row"\n')
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(b'{"id": "line", "text": "in a line"}'))
    (tmp_path / "e.html").write_text("<title>P</title><p>in a page")

    job = client.submit(read(tmp_path, text_column="body"), prompt="Answer")
    worker.step()
    results = {result.custom_id: result for result in job.results()}

    assert {
        "a.pdf": "IN A PDF\n\nOF TWO PAGES\n",
        "b.docx": "IN WORD\n",
        "row": "IN\nA ROW",
        "line": "IN A LINE",
        "e.html": "IN A PAGE\n",
    } == {custom_id: result.text for custom_id, result in results.items()}
    assert {
        "a.pdf": {"file": "a.pdf", "format": "pdf", "title": "T", "pages": [1, 2]},
        "b.docx": {"file": "b.docx", "format": "docx"},
        "row": {"file": "c.csv", "line": 2, "row": 1},
        "line": {"file": "d.jsonl.gz", "line": 1},
        "e.html": {"file": "e.html", "format": "html", "title": "P"},
    } == {custom_id: result.source for custom_id, result in results.items()}


def test_a_file_without_text_is_an_answer_that_says_so(
    client: Client, worker: CannedWorker, tmp_path: Path
) -> None:
    """A scan and a broken file end as error records; the file beside them is answered."""
    (tmp_path / "scan.pdf").write_bytes(pdf([""]))
    (tmp_path / "broken.docx").write_bytes(b"hello")
    (tmp_path / "note.txt").write_text("note")

    job = client.submit(tmp_path, prompt="Answer")
    worker.step()
    results = {result.custom_id: result for result in job.results()}
    codes = {custom_id: one.error and one.error.code for custom_id, one in results.items()}

    assert {"scan.pdf": "no_text", "broken.docx": "extraction", "note.txt": None} == codes
    assert {"file": "scan.pdf"} == results["scan.pdf"].source
