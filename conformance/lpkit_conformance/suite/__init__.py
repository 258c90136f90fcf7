"""Running the checks on one plugin: in this process, in a child, under supervision."""
