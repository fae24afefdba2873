"""Views of the console's pages, one module for each group of pages."""
