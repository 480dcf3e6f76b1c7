"""What workers may do: typed functions, the rules they are called by, toolboxes, and built-in tools."""
