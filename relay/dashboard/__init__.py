"""The operator console: its own pages in the admin's frame, live numbers, and what they share."""
