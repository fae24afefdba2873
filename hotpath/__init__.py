"""The compiled form of the hot paths of relay and gateway, an option.

`compiled` names the modules, and loads their build where there is one; `compiling` makes the build.
The packages that have such modules import this one first.
"""

from hotpath import compiled

compiled.enable()
