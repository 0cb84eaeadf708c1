"""Downloads public datasets: resumed, checked, unpacked, and put in place whole."""
