"""Model providers for programs that call the model themselves."""
