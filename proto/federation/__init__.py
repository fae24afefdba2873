"""The batch form and the rules of delivery that relays of this implementation share."""
