"""Tables: their logs in recorded time, their content, and their changes as the input of pipelines."""
