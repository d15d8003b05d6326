"""`suimon secrets`: values go in and are never shown; keys are checked before anything is done."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from cli.conftest import Answer, Cli
from suimon.db.connect import Connection

KEY, NEW = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
VALUE = "p@ss/w%rd zwei"
USES = """
from suimon import Pipeline, Webhook, pipeline, task

@task(secrets=["crm_token", "env:HOOK_SECRET"])
def post(ctx) -> str:
    return ctx.secret("crm_token")

p = Pipeline("posts")
p.on(Webhook("orders", preset="github", secret="secret:hook"))
p.run("post", post)
"""


class Secrets:
    """`suimon secrets ...` with a key in the environment."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli

    def __call__(self, *words: str, stdin: str = "", key: str | None = KEY, **env: str) -> Answer:
        given = env | ({"SUIMON_SECRET_KEY": key} if key else {})
        answer = self._cli("secrets", *words, stdin=stdin.encode(), env=given)
        for hidden in (VALUE, KEY, NEW):
            assert hidden not in answer.out + answer.err
        assert "Traceback" not in answer.err
        return answer

    def set(self, name: str, value: str = VALUE) -> None:
        answer = self("set", name, "--as", "maria", "--why", "new one", stdin=value + "\n")
        assert answer.code == 0, answer


@pytest.fixture
def secrets(cli: Cli) -> Secrets:
    return Secrets(cli)


@pytest.fixture
def used(cli: Cli, tmp_path: Path) -> Path:
    folder = tmp_path / "uses"
    folder.mkdir()
    (folder / "uses.py").write_text(USES, encoding="utf-8")
    assert cli("deploy", str(folder)).code == 0
    return folder


def test_what_is_set_is_listed_without_its_value(secrets: Secrets, cli: Cli) -> None:
    secrets.set("crm_token")
    secrets.set("crm_token", "another value")
    (one,) = secrets("list", "--json").json["secrets"]
    assert (one["name"], one["version"], one["uses"]) == ("crm_token", 2, 0)
    assert "crm_token" in secrets("list", key=None).out
    records = cli("audit", "list", "--action", "secret set", "--json").json["audit"]
    assert [one["actor"] for one in records] == ["maria", "maria"]
    assert {one["target"] for one in records} == {"crm_token"}
    assert VALUE not in json.dumps(records)


def test_a_value_comes_from_a_file_too(secrets: Secrets, tmp_path: Path) -> None:
    file = tmp_path / "value"
    file.write_text(VALUE + "\n")
    assert secrets("set", "crm_token", "--from-file", str(file), "--json").json["version"] == 1


def test_a_value_is_never_an_argument(secrets: Secrets, conn: Connection) -> None:
    answer = secrets("set", "crm_token", VALUE)
    assert answer.code == 2
    assert "never given as an argument" in answer.err
    assert conn.execute("select count(*) from suimon.secrets").fetchone() == (0,)


@pytest.mark.parametrize(
    ("words", "stdin", "said"),
    [
        (["set", "Not A Name"], VALUE, "cannot be used"),
        (["set", "crm_token"], "", "is empty"),
        (["set", "crm_token"], "abc", "fewer than 4"),
        (["set", "crm_token"], "x" * 70_000, "longer than 64 KiB"),
        (["set", "crm_token", "--from-file", "nowhere"], "", "No such file"),
        (["remove", "crm_token"], "", "there is no secret"),
    ],
)
def test_what_cannot_be_done_is_one_clear_error(
    secrets: Secrets, conn: Connection, words: list[str], stdin: str, said: str
) -> None:
    answer = secrets(*words, stdin=stdin)
    assert answer.code != 0
    assert said in answer.err
    assert conn.execute("select count(*) from suimon.secrets").fetchone() == (0,)


def test_without_a_key_or_with_a_wrong_one_nothing_is_stored(secrets: Secrets) -> None:
    answer = secrets("set", "crm_token", stdin=VALUE, key=None)
    assert (answer.code, "SUI-8002" in answer.err) == (4, True)
    assert "SUIMON_SECRET_KEY" in answer.err
    secrets.set("crm_token")
    answer = secrets("set", "crm_token", "--json", stdin="other value", key=NEW)
    assert (answer.code, answer.problem["code"]) == (4, "SUI-8003")
    answer = secrets("set", "crm_token", stdin="other value", key="no key at all")
    assert (answer.code, "base64 of 32 bytes" in answer.err) == (4, True)
    assert secrets("list", "--json").json["secrets"][0]["version"] == 1


def test_who_uses_it_is_told_and_it_is_not_removed_meanwhile(
    secrets: Secrets, used: Path, conn: Connection
) -> None:
    secrets.set("crm_token")
    secrets.set("hook")
    (use,) = secrets("where-used", "crm_token", "--json").json["uses"]
    assert use["pipeline"] == "posts"
    assert use["where"] == "vertex post, task uses:post"
    (hook,) = secrets("where-used", "secret:hook", "--json").json["uses"]
    assert hook["where"] == "WEBHOOK orders, secret"
    (env,) = secrets("where-used", "env:HOOK_SECRET", "--json").json["uses"]
    assert env["reference"] == "env:HOOK_SECRET"
    conn.execute(
        "insert into suimon.channels (name, kind, target, secret, kinds)"
        " values ('ops', 'webhook', 'https://ops.example', 'secret:hook', '{run.failed}')"
    )
    (_, channel) = secrets("where-used", "hook", "--json").json["uses"]
    assert channel["where"] == "channel ops, secret"
    refused = secrets("remove", "crm_token")
    assert refused.code == 5
    assert "posts: vertex post" in refused.err
    assert secrets("remove", "crm_token", "--force").code == 0


def test_check_finds_what_leads_nowhere(secrets: Secrets, used: Path, conn: Connection) -> None:
    secrets.set("crm_token")
    answer = secrets("check", "--json", HOOK_SECRET="here it is")
    assert answer.code == 1
    (problem,) = answer.json["problems"]
    assert 'no secret "hook"' in problem["problem"]
    assert "suimon secrets set hook" in problem["hint"]
    secrets.set("hook")
    assert secrets("check", HOOK_SECRET="here it is").code == 0
    unset = secrets("check")
    assert unset.code == 1
    assert "As this shell sees it" in unset.out
    assert secrets("check", key=NEW, HOOK_SECRET="here it is").code == 1
    conn.execute("update suimon.secrets set version = 7 where name = 'hook'")
    answer = secrets("check", "--json", HOOK_SECRET="here it is")
    assert "was changed" in answer.json["problems"][0]["problem"]


def test_keys_are_rotated_and_the_old_one_is_not_needed(secrets: Secrets, cli: Cli) -> None:
    for name in ("one", "two"):
        secrets.set(name)
    refused = secrets("rotate", key=NEW)
    assert refused.code == 4
    both = {"SUIMON_SECRET_KEY_OLD": KEY}
    assert secrets("rotate", "--json", key=NEW, **both).json["encrypted"] == 2
    assert "nothing to do" in secrets("rotate", key=NEW, **both).out
    assert secrets("check", key=NEW).code == 0
    assert secrets("check", key=KEY).code == 1
    records = cli("audit", "list", "--action", "secret key rotate", "--json").json["audit"]
    assert len(records) == 1
