"""One claimed execution in this process: what it is made of, and the transactions of its run."""
