"""Tables: their log of changes in recorded time, their current content, and the statements that change them."""
