"""`python -m docmill.cli` is `docmill`."""

from docmill.cli.app import main

main()
