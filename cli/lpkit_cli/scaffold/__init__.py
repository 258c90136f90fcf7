"""What ``lpkit new`` writes: names of a project, what the template is told of a wrapped class, baking."""
