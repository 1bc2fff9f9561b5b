"""Images from files: loading and preparation for providers."""
