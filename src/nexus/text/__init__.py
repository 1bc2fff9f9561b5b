"""Text made safe to show: frames that nobody can forge, secrets redacted, messages as plain text."""
