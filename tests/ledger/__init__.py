"""The ledger: what was acknowledged stays, whole and in order; what was damaged is said to be."""
