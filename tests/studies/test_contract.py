"""The contract for machines is made from the code, and is an AsyncAPI document."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import jsonschema
import pytest

from lethe.consumers.contract import topics
from tests.support.servers import ROOT

SPECIFICATION = "@asyncapi/specs@6.11.1"
"""npm package with the JSON Schema of AsyncAPI documents."""


def test_docs_contract_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "contract.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_topic_that_others_use_is_in_the_document() -> None:
    document = json.loads((ROOT / "docs/contract/asyncapi.json").read_text(encoding="utf-8"))
    described = {channel["address"] for channel in document["channels"].values()}
    own = {topics.COMMITS, topics.DEAD_LETTERS, topics.SUPPRESSIONS}
    assert described == {spec.name for spec in topics.specs()} - own


def test_the_document_is_asyncapi_3(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        if os.environ.get("CI") == "true":
            pytest.fail("npm is missing: install Node.js")
        pytest.skip("needs npm (Node.js) for the specification's own schema")
    packed = subprocess.run(
        [npm, "pack", "--silent", SPECIFICATION],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    name = "package/schemas/3.0.0.json"
    with tarfile.open(tmp_path / packed.stdout.strip()) as package:
        content = package.extractfile(name)
        assert content is not None
        specification = json.loads(content.read())
    document = json.loads((ROOT / "docs/contract/asyncapi.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator(specification).validate(document)
