"""One module per family of models that `vgtok.wrap` can run; each lists its adapters in `FAMILIES`."""
