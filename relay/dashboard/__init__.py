"""The operator console: pages in the theme's frame, live figures, and their shared parts."""
