"""Hard constraints on designs: rules over tokens, the automaton that tracks them, and the masked task."""

from stochflow.environments.sequences.constraints.automaton import Automaton
from stochflow.environments.sequences.constraints.rules import make_rules
from stochflow.environments.sequences.constraints.task import ConstrainedTask, PrefixMask

__all__ = ["Automaton", "ConstrainedTask", "PrefixMask", "make_rules"]
