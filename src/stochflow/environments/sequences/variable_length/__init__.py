"""Designs of variable length: a stop action, bounds, and channels with deletions and duplications."""

from stochflow.environments.sequences.variable_length.alphabet import StopAlphabet
from stochflow.environments.sequences.variable_length.channel import EditChannel
from stochflow.environments.sequences.variable_length.rules import LengthRules
from stochflow.environments.sequences.variable_length.task import LengthMask, VariableTask

__all__ = ["EditChannel", "LengthMask", "LengthRules", "StopAlphabet", "VariableTask"]
