"""The examples, which are those of the documents, run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE, ROOT, Server

EXAMPLES = sorted((ROOT / "python/examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(server: Server, example: Path) -> None:
    where = str(server.admin) if example.stem == "admin" else server.url
    words = [sys.executable, "-X", "dev", "-W", "error", str(example), where]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stderr


def test_documents_show_the_examples() -> None:
    text = (ROOT / "docs/how-to/use-from-python.md").read_text()
    shown = re.findall(r"<!-- (\S+) -->\n```python\n(.*?)```\n", text, re.DOTALL)
    assert [path for path, _ in shown] == [
        f"python/examples/{name}.py" for name in ("blocking", "asynchronous", "file", "admin")
    ]
    for path, code in shown:
        assert code == (ROOT / path).read_text(), path
    assert text.count("```python") == len(shown)


def test_exceptions_are_documented() -> None:
    import nearflash

    text = (ROOT / "docs/reference/python-api.md").read_text()
    for name in nearflash.__all__:
        assert re.search(rf"`(nearflash\.)?{name}\b", text), name
