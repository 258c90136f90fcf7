"""Output for people, and the formats of a report. These modules only render results; other rooms compute them."""
