"""Its import never ends."""

while True:
    pass
