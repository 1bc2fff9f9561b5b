"""Which source stands in which slot: the built-in profiles and those of the user."""
