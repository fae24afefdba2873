"""Django app of `relay.lattice`."""

from __future__ import annotations

from django.apps import AppConfig


class LatticeAppConfig(AppConfig):
    name = "relay.lattice"
    label = "relay_lattice"
    verbose_name = "Lattice"
