"""The peers: other agent loops, each in a process and an environment of its own, with the floor beside it."""
