"""The command line as its users meet it: real files, real arguments, real exit codes."""
