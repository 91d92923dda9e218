"""The filter's own processes: a worker has what jobs said looked through where it takes no worker down."""
