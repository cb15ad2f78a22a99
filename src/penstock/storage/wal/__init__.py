"""The write-ahead log.

From the disk upwards: ``files`` (the file system), ``record`` and ``segment`` (the bytes),
``replay`` (reading it all), ``tail`` (its end on disk), ``log`` (appending and committing),
``committer`` (group commit), ``codec`` (events as records), ``journal`` (the machine's view of
the log), ``checkpoint``, ``recovery`` and ``compaction``, and ``store``, which puts them together.

``offline`` inspects and repairs a directory while no store has it open.
"""
