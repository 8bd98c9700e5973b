"""Goals as they are written."""

import math

import pytest
import torch

from stochflow import ConfigError
from stochflow.campaigns.goals import Goal, Threshold


def test_goals_are_read():
    assert Goal.parse("sample") == Goal("sample")
    assert Goal.parse("target:-2") == Goal("target", -2.0)
    assert str(Goal.parse("target:-2")) == "target:-2.0"


@pytest.mark.parametrize("text", ["minimise", "target", "target:", "target:nan", "maximise:3", ""])
def test_other_goals_are_refused(text):
    with pytest.raises(ConfigError, match=r"give maximise, sample, or target:0.7"):
        Goal.parse(text)


@pytest.mark.parametrize("text", ["tox", "tox>1", ">=1", "tox>=", "tox>=inf", "tox>=a", "a<=b<=3"])
def test_other_thresholds_are_refused(text):
    with pytest.raises(ConfigError, match=r"solubility>=0\.5"):
        Threshold.parse(text)


def test_measured_failures_break_thresholds_and_unmeasured_ones_do_not():
    goal = Goal.parse("maximise", ["Tox <= 0.5", "score>=0"])
    assert goal.properties == ["tox"]
    scores = torch.tensor([1.0, 1.0, 1.0, -1.0])
    tox = torch.tensor([0.5, 0.6, math.nan, math.nan])
    assert goal.failed(scores, {"tox": tox}).tolist() == [False, True, False, True]
