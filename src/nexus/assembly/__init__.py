"""One call's context: gather blocks, fit them to the budget, build the manifest, record the reply."""
