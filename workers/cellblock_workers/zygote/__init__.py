"""The fork-server in an image's root, and its system calls. Python 3.8, standard library only."""
