"""Readers and writers that the SQL databases share. Each database has its own connection, schema and search."""
