"""The API: `Database` and `Query`, scripts, and introspection."""
