"""One module for each provider, in both directions. Nothing else knows a provider."""
