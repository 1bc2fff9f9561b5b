"""Readers and writers of the user's folders, and the sources that turn their content into blocks."""
