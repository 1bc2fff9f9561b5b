"""The interface of document 000."""
