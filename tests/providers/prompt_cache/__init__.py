"""The prompt cache: rules, simulation, the arithmetic of breaks."""
