"""Values as text and JSON: reports, exports, the tagged dialogue, the turn log."""
