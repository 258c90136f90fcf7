"""Everything that is printed for people, and the formats of a report; computing is elsewhere, these only render."""
