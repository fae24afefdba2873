"""The relay. Its hot path is compiled where there is a build (`relay.compiled`)."""

from relay import compiled

compiled.enable()
