"""What this application shows in the admin."""

from relay.ops import queues_admin as queues_admin
