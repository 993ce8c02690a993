"""What silences a checker says why, on the same line."""

from __future__ import annotations

import io
import re
import tokenize

from tests.commands import ROOT

SILENCED = re.compile(r"#\s*(?:type: ignore(?:\[[^\]]*\])?|noqa(?:: [A-Z0-9, ]+)?)")


def test_every_suppression_has_its_reason_beside_it() -> None:
    """`# type: ignore[code]  # why` and `# noqa: CODE  # why`; without the why it is a guess."""
    bare = []
    for folder in ("src", "examples", "benchmarks"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
                if token.type != tokenize.COMMENT or not SILENCED.search(token.string):
                    continue
                if not re.search(r"\w{2}", SILENCED.sub("", token.string)):
                    bare.append(f"{file.relative_to(ROOT)}:{token.start[0]}: {token.string}")

    assert not bare, "\n".join(bare)
