"""What a cluster needs to be told to run an experiment: no tensorflow."""
