"""The unprivileged half of a host: claims jobs, reads what sandboxes send, writes results."""
