"""Whether tests play their long form: `make verify` sets ARGUS_LONG_FORMS, `make test` plays the short ones.

Both make the same assertions, the long form about more worlds, seeds or examples.
"""

from __future__ import annotations

import os
from typing import Final

LONG: Final = bool(os.environ.get("ARGUS_LONG_FORMS"))
