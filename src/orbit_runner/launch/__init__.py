"""The processes of a cluster on one machine."""

LAUNCHED = "ORBIT_RUNNER_LAUNCHED"  # A variable that is set in the members.
