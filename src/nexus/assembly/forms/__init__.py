"""How a profile's form shows the conversation, where that is not in real roles.

`one_turn` has the window of the turn alone, and what lies before it; `tagged_message` the user's message in document
000's frame; `turnlog` the turn-log form.
"""
