"""The members of a cluster, and where they are described. Imports no tensorflow."""
