"""kpd: compressed gradients on the wire and language models on a CPU.

The parts are modules of their own: ``import kpd.gradient``. Importing ``kpd`` loads neither numpy nor torch.
"""

from kpd._errors import Error
from kpd._kpd import version as __version__

__all__ = ["Error", "__version__"]
