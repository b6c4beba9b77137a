"""Pages as one file: the audit page, for a machine that is on no network, and its style sheet.

Browsers load no module from a file, so the modules are joined into one, in the order in which they
use each other. A policy in the page allows exactly these scripts and styles, by their hashes, and
no address at all: what is checked cannot leave the machine.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable

MODULES = (
    "bytes", "json", "merkle", "signatures", "bundle", "events", "history", "checks", "erasure",
    "refit", "table", "retraining", "audit", "page",
)  # fmt: skip
"""Each uses only those before it."""

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./\w+\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=async |class |const |function )", re.MULTILINE)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'sha256-{script_hash}'; style-src 'sha256-{style_hash}'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Audit · Lethe</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header class="top"><div><span class="brand">Lethe</span></div></header>
<main id="main" tabindex="-1">
{body}</main>
<script type="module">{script}</script>
</body>
</html>
"""  # noqa: E501 - a policy is one line


def audit_page() -> str:
    """Return the page; the same text from the same release."""
    here = files("lethe.consumers.server.console")
    script = script_of(MODULES)
    style, style_hash = style_and_hash()
    return _PAGE.format(
        script=script,
        script_hash=_hash(script),
        style=style,
        style_hash=style_hash,
        body=here.joinpath("templates", "audit_body.html").read_text(encoding="utf-8"),
    )


def script_of(names: Sequence[str]) -> str:
    """Return modules of the page joined into one; each uses only those before it."""
    folder = files("lethe.consumers.server.console").joinpath("static", "audit")
    return "\n".join(_joined(folder.joinpath(f"{name}.js")) for name in names)


def style_and_hash() -> tuple[str, str]:
    """Return the style sheet, for a page that is one file, and its hash, for the page's policy."""
    here = files("lethe.consumers.server.console")
    style = here.joinpath("static", "console.css").read_text(encoding="utf-8")
    return style, _hash(style)


def _joined(module: Traversable) -> str:
    return _EXPORT.sub("", _IMPORT.sub("", module.read_text(encoding="utf-8")))


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
