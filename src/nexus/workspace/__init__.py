"""What is read from and written to the user's folders, and the sources that turn it into blocks."""
