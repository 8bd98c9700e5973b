"""What a lab will not accept: which designs are allowed, and which prefixes can still become one."""

from stochflow.environments.sequences.constraints.automaton import Automaton
from stochflow.environments.sequences.constraints.rules import make_rules
from stochflow.environments.sequences.constraints.task import ConstrainedTask, PrefixMask

__all__ = ["Automaton", "ConstrainedTask", "PrefixMask", "make_rules"]
