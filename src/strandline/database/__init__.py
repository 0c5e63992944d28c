"""The API: `Database` and `Query`, scripts, and what they tell of themselves."""
