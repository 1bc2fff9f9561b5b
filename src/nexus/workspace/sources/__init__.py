"""Sources of blocks; `registry` maps the names that profiles use to these functions."""
