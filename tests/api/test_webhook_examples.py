"""The examples of docs/doors.md: each preset's call, signed in the shell, is taken."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.hooks import serving
from support.project import Project

from suimon.core.signatures import PRESETS

ROOT = Path(__file__).resolve().parents[2]
SECRET = "whsec_c2VjcmV0LW9mLWEtdGVzdA=="


def section() -> str:
    text = (ROOT / "docs" / "doors.md").read_text(encoding="utf-8")
    return text.partition("\n## Webhooks\n")[2].partition("\n## ")[0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", section(), re.DOTALL)


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("openssl")), reason="needs curl and openssl"
)
def test_each_preset_has_an_example_that_is_taken(db_url: str, tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    (project.root / "hooks.py").write_text("\n".join(blocks("python")))
    project.deploy(db_url)
    examples = blocks("sh")
    named = [re.match(r"# (\w+)", example) for example in examples]
    assert {one[1] for one in named if one} == set(PRESETS)
    with serving(db_url, environment={"HOOK_SECRET": SECRET}) as port:
        for example in examples:
            script = example.replace("localhost:8700", f"localhost:{port}")
            env = {"PATH": os.environ["PATH"], "HOOK_SECRET": SECRET}
            done = subprocess.run(
                ["bash", "-euc", script], env=env, capture_output=True, text=True, check=True
            )
            answer = json.loads(done.stdout)
            assert answer["run_id"], (example, answer)
            assert answer["duplicate"] is False
            assert "delivery_id_from_sender" not in answer
