"""Activity of a plugin: the steps at which it acts, and the tokens that switch it on."""
