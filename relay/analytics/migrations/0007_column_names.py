from django.db import migrations

RENAMED = (
    ("anomaly", "x", "accepted"),
    ("anomaly", "med", "median"),
    ("anomaly", "mad", "deviation"),
    ("relaypairhour", "n", "attempts"),
    ("trafficmatrix", "n", "messages"),
)


class Migration(migrations.Migration):
    dependencies = [("relay_analytics", "0006_gap_estimates")]

    operations = [migrations.RenameField(*each) for each in RENAMED]
