"""Making it fit: repair, window, cuts, prefix check. Pure."""
