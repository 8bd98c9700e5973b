"""Methods by name."""

import re

import pytest

from stochflow.config.methods import METHODS
from stochflow.core.errors import ConfigError
from stochflow.experiments import launch


@pytest.mark.parametrize("method", METHODS)
def test_every_preset_holds_known_settings_only(method: str) -> None:
    assert launch.resolve_config([{"method": method}]).method == method


@pytest.mark.parametrize("method", METHODS)
def test_every_method_says_what_it_is_what_it_uses_and_where_it_comes_from(method: str) -> None:
    found = METHODS[method]
    assert found.description.endswith(".")
    assert found.uses
    assert re.search(r"docs/method\.md|\b(19|20)\d\d\b", found.reference)  # our own page, or a year


def test_balance_conditions_differ_in_the_condition_alone() -> None:
    shared = [
        {key: value for key, value in method.settings.items() if key != "objective"}
        for method in METHODS.values()
        if "balance" in method.settings.get("objective", {}).get("kind", "kl")
    ]
    assert len(shared) == 6
    assert all(settings == shared[0] for settings in shared)


def test_an_unknown_method_or_task_lists_the_ones_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'ppo2'; choose one of: sgfn-kl, .*sgfn-db"):
        launch.resolve_config([{"method": "ppo2"}])
    with pytest.raises(ConfigError, match="'tfbind9'; choose one of: tfbind8"):
        launch.resolve_config([{"task": "tfbind9"}])
