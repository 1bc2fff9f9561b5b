"""Configuration files and environment variables, merged into one `Config`."""
