"""Settings come from the environment and the options, with all mistakes at once."""

from __future__ import annotations

import pytest

from suimon.core.settings import OTHER_VARIABLES, Settings, SettingsError, described, load


def test_nothing_given_means_defaults() -> None:
    """An empty environment is a valid one."""
    assert load({}) == Settings()


def test_an_option_wins_over_the_environment() -> None:
    """And an option that was not given (None) does not."""
    environment = {"SUIMON_POOL": "gpu", "SUIMON_SLOTS": "4", "SUIMON_HEARTBEAT": "250ms"}
    settings = load(environment, {"slots": 8, "pool": None})
    assert (settings.pool, settings.slots, settings.heartbeat) == ("gpu", 8, 0.25)


def test_all_mistakes_are_reported_at_once() -> None:
    """Five mistakes, five lines, and no value of a URL among them."""
    environment = {
        "SUIMON_SLOTS": "many",
        "SUIMON_HEARTBEAT": "soon",
        "SUIMON_SWEEP": "0s",
        "SUIMON_DATABSE_URL": "postgresql://ann:s3cret@h/db",
        "SUIMON_POOL": " ",
    }
    with pytest.raises(SettingsError) as caught:
        load(environment)
    text = caught.value.render()
    assert len(caught.value.mistakes) == 5
    assert 'SUIMON_SLOTS must be a whole number from 1 to 1000, not "many"' in text
    assert "SUIMON_DATABASE_URL" in text
    assert "s3cret" not in text
    assert caught.value.exit_code == 2


def test_a_pool_is_named_as_pipelines_name_it() -> None:
    """Another name could never be sent a run."""
    with pytest.raises(SettingsError, match="small letters") as caught:
        load({}, {"pool": "G P U"})
    assert caught.value.exit_code == 2


def test_a_variable_like_no_setting_is_the_users_own() -> None:
    """As are those that others read."""
    load(dict.fromkeys(("SUIMON_ZZZ", *OTHER_VARIABLES), "x"))


def test_every_setting_is_described() -> None:
    """Help and documents are made from these."""
    assert {name for name, _, _ in described()} >= {"SUIMON_DATABASE_URL", "SUIMON_SLOTS"}
    assert all(about for _, about, _ in described())
