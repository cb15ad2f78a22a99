"""The write-ahead log.

From the disk upwards: ``files`` (the file system), ``record`` and ``segment`` (the bytes),
``replay`` (reading it all), ``tail`` (its end on disk), ``log`` (appending and committing),
``committer`` (the writer thread).

To look at a directory and to mend it: ``damage`` (reading past it), ``layout`` (which files count),
``survey`` and ``verify``, and for ``repair``: ``salvage`` and ``gapped``.
"""

from __future__ import annotations
