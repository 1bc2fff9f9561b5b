"""Time zones and time stamps of messages."""
