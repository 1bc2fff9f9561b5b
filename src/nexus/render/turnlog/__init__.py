"""The turn log of document 001: one entry for each thing that was said or done, as JSON and for the console."""
