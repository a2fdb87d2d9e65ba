"""What every compatibility test stands on: a real broker, real clients, real-shaped data."""
