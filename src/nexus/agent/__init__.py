"""The agent module of document 003: its context builder, memory and skills under their printed names."""
