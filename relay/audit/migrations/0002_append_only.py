"""Create the triggers that make the log append-only.

SQLite drops a table's triggers when a migration alters the table: such a migration has to end with
these operations again.
"""

from django.db import migrations

from relay.audit import triggers


class Migration(migrations.Migration):
    dependencies = [("relay_audit", "0001_initial")]

    operations = [migrations.RunPython(triggers.install, triggers.remove)]
