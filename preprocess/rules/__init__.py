"""What is wrong, odd or hostile in a text: rules with ids, each with a policy.

One rule is some data and a small function that looks, in the module of its family; `RULES` holds
them all, `inspect` applies them. May import docmill, numpy and ftfy.
"""

from preprocess.rules.base import Hits, Rule
from preprocess.rules.inspection import Inspection, inspect, unknown_rules
from preprocess.rules.registry import RULES

__all__ = ["RULES", "Hits", "Inspection", "Rule", "inspect", "unknown_rules"]
