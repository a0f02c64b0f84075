"""What docmill claims about speed, measured beside its peers in one run."""
