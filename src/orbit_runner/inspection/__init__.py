"""An experiment before it is trained: layers, a measured step, the schedule, more replicas."""
