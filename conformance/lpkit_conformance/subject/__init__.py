"""The subject of every check: a plugin, its engine and a model; all of it is immutable."""
