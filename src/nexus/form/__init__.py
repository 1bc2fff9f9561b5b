"""How a profile's form shows the conversation, where that is not in real roles.

`turn` has the window of the turn alone, and what lies before it; `said` the user's message in document 000's frame.
"""
