"""What comes in from other programs, from whom, and what must go out: a table of situations for each area."""
