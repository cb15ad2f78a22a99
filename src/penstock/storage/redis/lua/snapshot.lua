#!lua flags=no-writes
-- A queue and its dead-letter queue without their messages, as of one moment, for the archive.
--
-- KEYS[1]  the queue's hash; reads the keys of its subscriptions, its :pins, and those of its
--          dead-letter queue
-- Returns  see lib/snapshot.lua
-- uses: snapshot
return snapshot(KEYS[1])
