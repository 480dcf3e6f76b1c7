"""What results and answers rest on, where they contradict each other, and which failure modes a run shows."""
