"""The walls: who may call, under which name, how often and with how much. What is said inside is for the doors."""
