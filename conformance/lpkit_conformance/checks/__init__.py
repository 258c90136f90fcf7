"""The checks on the reference runtime, a module or two per family; the catalogue lists them."""
