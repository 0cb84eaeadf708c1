"""The flags of the commands: of configs, of Model Garden's drivers, of older drivers; paths."""
