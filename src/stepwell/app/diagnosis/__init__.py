"""What ``stepwell doctor`` looks at: each check says what it found and how to mend it."""

from stepwell.app.diagnosis.checking import diagnosis
from stepwell.app.diagnosis.finding import Finding, Level

__all__ = ["Finding", "Level", "diagnosis"]
