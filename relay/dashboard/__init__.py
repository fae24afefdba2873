"""The operator console: its own pages in the theme's frame, live numbers, and what they share."""
