"""What document 001 prints, typed from it: the example as JSON and as the console shows it."""

from __future__ import annotations

import json
from typing import Any

PRINTED = """\
[
  {
    "index": 0,
    "turn": 0,
    "timestamp": "2023-04-04T12:33:00Z",
    "role": "system",
    "content": "You're a helpful AI assistant named Aya. You help users with content..."
  },
  {
    "index": 1,
    "turn": 0,
    "timestamp": "2023-04-04T12:33:10Z",
    "role": "user",
    "content": {
      "userid": "<@U1234546>",
      "text": "Suggest lunch options please."
    }
  },
  {
    "index": 2,
    "turn": 1,
    "timestamp": "2023-04-04T12:33:20Z",
    "role": "assistant",
    "content": {
      "toolCall": "getThreadHistory",
      "ascending": false,
      "reasoning": "Checking for context about dietary preferences"
    }
  },
  {
    "index": 3,
    "turn": 1,
    "timestamp": "2023-04-04T12:33:30Z",
    "role": "assistant",
    "content": {
      "toolCall": "postMessage",
      "text": "Here are some lunch suggestions: 1) Mushroom risotto, 2) Caesar salad, 3) Vegetable curry",
      "reasoning": "Providing diverse lunch options"
    }
  }
]
"""
"""Document 001, "Complete Example", "JSON Format"."""

DISPLAYED = """\
🧠 System: You're a helpful AI assistant named Aya...

👤 User <@U1234546> [Turn 0]
🕐 2023-04-04T12:33:10Z
> Suggest lunch options please.

🤖 Assistant [Turn 1]
🕐 2023-04-04T12:33:20Z
🔧 getThreadHistory (ascending: false)
   └─ Reason: Checking for context about dietary preferences

🤖 Assistant [Turn 1]
🕐 2023-04-04T12:33:30Z
💬 postMessage:
   "Here are some lunch suggestions: 1) Mushroom risotto, 2) Caesar salad, 3) Vegetable curry"
   └─ Reason: Providing diverse lunch options
"""
"""Document 001, "Complete Example", "Console Display"."""

LOG: list[dict[str, Any]] = json.loads(PRINTED)
