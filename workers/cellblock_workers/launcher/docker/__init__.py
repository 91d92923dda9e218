"""gVisor and runc through the Docker daemon."""
