"""What happens to requests: operations, generators, and programs as JSON and as words."""
