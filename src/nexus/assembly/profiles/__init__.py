"""Assignment of sources to slots: the built-in profiles and the user's."""
