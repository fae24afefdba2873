import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('relay_access', '0003_sign_in'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='AccountUse',
            fields=[
                ('account', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='use', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('last_seen', models.DateTimeField(null=True)),
                ('last_address', models.CharField(blank=True, default='', max_length=64)),
                ('one_time', models.CharField(blank=True, default='', help_text='Mark of the password that the account has to replace at its next sign-in.', max_length=64)),
            ],
            options={
                'default_permissions': (),
            },
        ),
    ]
