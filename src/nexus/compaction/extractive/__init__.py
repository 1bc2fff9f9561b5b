"""A summary without a model: extract what must not be lost, and write it down. Pure."""
