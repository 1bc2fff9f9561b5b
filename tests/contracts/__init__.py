"""What holds for the project as a whole: imports, sizes, the public face, commands, documented examples, words."""
