"""The checks, a module or two per family; the catalogue lists them, and the examples show wrong and right code."""
