"""A program to run in a sandbox: cellblock run examples/hello.py"""

import os
import platform

print(f"hello from Python {platform.python_version()} on {platform.release()}, uid {os.getuid()}")
