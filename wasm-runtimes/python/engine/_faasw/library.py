"""The standard library, as `compile_library.py` wrote it; read while the engine is built.

Nothing may remain of reading it but the two: what was freed stays in the component.
"""

import marshal
import os

_folder = os.path.dirname(__file__)
with open(f"{_folder}/library.index", "rb", 0) as _file:
    INDEX = marshal.loads(_file.read())
with open(f"{_folder}/library.code", "rb", 0) as _file:
    CODE = _file.read()
