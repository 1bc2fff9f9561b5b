"""Safe reading of text files: containment, decoding, front matter, includes, truncation."""
