"""Text out of PDF, Word and HTML files, in a process of its own.

The formats are complicated, their parsers are large, and some files are made to hurt: whatever one
of them does, it does to the process `python -m docmill.extract`, which has limits and can be
replaced. Decides what counts as a file's text; docmill.intake starts the process and words what is
told to people. Needs the extra `documents`. May import docmill.errors.
"""
