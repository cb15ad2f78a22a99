"""The write-ahead log.

From the disk upwards: ``files`` (the file system), ``record`` and ``segment`` (the bytes),
``replay`` (reading it all), ``tail`` (its end on disk), ``log`` (appending and committing),
``committer`` (the writer thread).
"""

from __future__ import annotations
