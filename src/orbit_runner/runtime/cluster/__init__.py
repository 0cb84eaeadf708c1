"""What a cluster is made of, and where that is written: no tensorflow."""
