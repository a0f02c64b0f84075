"""The service's processes: streams, batching, supervision, the control plane."""
