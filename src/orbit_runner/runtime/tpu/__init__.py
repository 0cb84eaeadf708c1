"""TPUs: where one is, how its devices are shared out to replicas, the strategy over them."""
