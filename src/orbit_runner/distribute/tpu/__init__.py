"""TPUs: where one is, which of its devices share a replica, the strategy over them."""
