"""JSON Schema from a signature."""
