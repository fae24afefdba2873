"""What relays of this kind agree on among themselves: the batch form and the rules of delivery."""
