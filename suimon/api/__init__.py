"""The HTTP surface: ``suimon serve``. Thin over the same functions as the command line."""
