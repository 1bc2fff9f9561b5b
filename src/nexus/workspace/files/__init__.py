"""Read text files safely: containment, front matter, includes, truncation, decoding."""
