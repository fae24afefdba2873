"""The groups of the roles. What they may is set after each `migrate`: see `relay.access.roles`."""

from django.db import migrations

NAMES = ("viewer", "operator", "owner")


def make(apps, schema_editor):
    groups = apps.get_model("auth", "Group").objects.using(schema_editor.connection.alias)
    for name in NAMES:
        groups.get_or_create(name=name)


class Migration(migrations.Migration):
    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("relay_access", "0001_initial"),
    ]

    # Backwards nothing is removed: members of a group would lose their roles with it.
    operations = [migrations.RunPython(make, migrations.RunPython.noop)]
