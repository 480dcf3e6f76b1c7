"""What a team shares: blocks, archives, conversations. Words and rules; where they are kept is `stores`' business."""
