"""The law of fitting: whatever a session does, what a call shows is valid, within budget, explained, and the same again."""
