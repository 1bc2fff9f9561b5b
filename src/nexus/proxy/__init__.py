"""A proxy for clients of models: they change one address, and each call is recorded, healed or kept within a budget.

Requests go upstream as they were received, byte for byte, unless something has to be changed; then a header of the answer
names the call, and its report has each change with its reason.
"""

from __future__ import annotations
