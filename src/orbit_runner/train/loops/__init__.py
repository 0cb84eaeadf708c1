"""The inner loops: how many steps a call takes, and how they are fed and recorded."""
