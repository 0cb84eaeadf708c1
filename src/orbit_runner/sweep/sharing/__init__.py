"""How the processes of a sweep share its trials, and the trials the cores and GPUs of a machine."""
