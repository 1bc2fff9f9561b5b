"""Policies as values, and the decision about what one call is granted. Pure; files are read in `workspace`.

All policies of a call apply, the user's before the workspace's. Each can only restrict, so a workspace's policy never
grants more than the user's; where both define a principal's role or session, the user's policy wins.
"""

from __future__ import annotations

from nexus.policy.decision import decide
from nexus.policy.values import Default, DeniedTool, Grant, Policy, Principal, RoleRule, Toolset

__all__ = ["Default", "DeniedTool", "Grant", "Policy", "Principal", "RoleRule", "Toolset", "decide"]
