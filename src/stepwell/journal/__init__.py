"""What happened in a run, as entries: made once by the projector, stored and shown by others."""

from stepwell.journal.entry import Entry
from stepwell.journal.projector import Projector

__all__ = ["Entry", "Projector"]
