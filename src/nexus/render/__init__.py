"""Values to text and JSON: reports, exports, the providers' wires."""
