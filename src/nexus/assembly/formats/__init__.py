"""Message formats: how a profile shows the conversation.

`roles` shows messages in real roles, `tagged` the open turn alone with the user's text in a frame, `turnlog` entries of
a turn log. `registry` maps their names to them.
"""
