"""The chain that twins live on, reached through its nodes."""
