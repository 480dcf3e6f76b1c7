"""What workers may do: typed functions, the rules they are called by, and a toolbox."""
