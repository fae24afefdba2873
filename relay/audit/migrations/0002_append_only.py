"""The triggers that let the log only grow.

SQLite drops a table's triggers when a migration alters the table: such a migration ends with these
operations once more.
"""

from django.db import migrations

from relay.audit import triggers


class Migration(migrations.Migration):
    dependencies = [("relay_audit", "0001_initial")]

    operations = [migrations.RunPython(triggers.install, triggers.remove)]
