"""Reads the sweep file, and checks it against the experiment."""
