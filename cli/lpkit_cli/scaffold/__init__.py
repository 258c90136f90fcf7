"""Projects of ``lpkit new``: names, what the template is told, baking, and the merge of a newer template into them."""
