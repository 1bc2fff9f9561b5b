"""The documented interface of the workspace builder (document 003), as a thin door on the rooms of Nexus."""
