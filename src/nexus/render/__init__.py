"""Values as text and JSON: reports, exports, sessions as conversations."""
