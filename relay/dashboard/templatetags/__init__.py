"""What the console's templates can say."""
