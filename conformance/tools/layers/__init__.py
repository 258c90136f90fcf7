"""The layers of this repository's packages: what may import what, measured from the source, lazy imports included."""
