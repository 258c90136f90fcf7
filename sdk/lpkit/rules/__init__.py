"""Rules, a class per module; and rules as data: :mod:`lpkit.rules.chain` runs the chain that a request brings."""
