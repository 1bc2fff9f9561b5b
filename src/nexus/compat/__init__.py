"""Documented interfaces of other systems under their own module paths; migrating changes one import prefix."""
