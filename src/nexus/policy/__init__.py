"""Who may do what: a policy as values, and the decision what one call is granted. Pure; files are read in `workspace`.

Several policies hold together, the user's before the workspace's. Each can only take away, so a workspace's policy never
grants what the user's does not; where both name somebody's role or session, the user's word stands.
"""

from __future__ import annotations

from nexus.policy.decision import decide
from nexus.policy.values import Default, DeniedTool, Grant, Policy, Principal, RoleRule, Toolset

__all__ = ["Default", "DeniedTool", "Grant", "Policy", "Principal", "RoleRule", "Toolset", "decide"]
