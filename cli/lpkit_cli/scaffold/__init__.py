"""Projects of ``lpkit new``: names, template variables, baking, and the merge of a newer template."""
