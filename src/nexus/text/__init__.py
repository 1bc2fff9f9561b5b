"""Safe text for contexts: frames that cannot be forged, secrets redacted, messages as plain text."""
