"""Training and evaluation under `parameter_server`: workers at their own pace."""
