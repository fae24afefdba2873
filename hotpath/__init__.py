"""Optional compiled form of the hot paths of relay and gateway.

`compiled` lists the modules and loads their build if there is one; `compiling` creates the build.
Packages that contain such modules import this package first.
"""

from hotpath import compiled

compiled.enable()
