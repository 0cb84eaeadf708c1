"""The sweep file: what it says, how it is read, and how it is checked against the experiment."""
