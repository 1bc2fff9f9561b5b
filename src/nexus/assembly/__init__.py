"""Assembly of one call's context: gather blocks, fit them to the budget, build the context, record the reply."""
