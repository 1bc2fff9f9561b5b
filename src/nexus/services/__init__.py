"""Document 000's services, as far as they are the context's."""
