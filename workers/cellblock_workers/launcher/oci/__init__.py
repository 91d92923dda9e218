"""gVisor and runc straight through the OCI runtime, without a daemon."""
