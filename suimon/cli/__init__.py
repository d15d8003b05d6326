"""The command line: one file per noun, tables for people, JSON for programs, no SQL."""
