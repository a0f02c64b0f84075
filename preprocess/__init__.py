"""Pure document preparation: checks, templates, tokens, truncation, fingerprints."""
