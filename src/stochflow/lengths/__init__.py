"""Designs of variable length: a stop action, bounds, and worlds that delete or duplicate what was intended."""

from stochflow.lengths.alphabet import StopAlphabet
from stochflow.lengths.channel import with_edits
from stochflow.lengths.rules import LengthRules
from stochflow.lengths.task import LengthMask, VariableTask

__all__ = ["LengthMask", "LengthRules", "StopAlphabet", "VariableTask", "with_edits"]
