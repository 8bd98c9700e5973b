"""What a lab will not accept: which designs are allowed, and which prefixes can still become one."""

from stochflow.constraints.automaton import Automaton
from stochflow.constraints.rules import make_rules
from stochflow.constraints.task import ConstrainedTask, PrefixMask

__all__ = ["Automaton", "ConstrainedTask", "PrefixMask", "make_rules"]
